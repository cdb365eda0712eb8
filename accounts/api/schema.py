"""Sign-up and sign-in, described for the OpenAPI document."""

from accounts.api.views import REFRESH, SIGN_IN, SIGN_UP
from wallet_project.kernel.errors import NotAuthenticated, TokenInvalid
from wallet_project.kernel.openapi import Answer, Chapter, Operation, number, record, ref, text

TAG = "Signing in"
TOKEN = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.e30.c2lnbmF0dXJl"  # noqa: S105  An example, signed by nobody.
PAIR = {"access": TOKEN, "refresh": TOKEN}

SCHEMAS = {
    "User": record(
        "A user.",
        {"userId": number("The user's number."), "username": text("The name that they sign in with.")},
    ),
    "Tokens": record(
        "What a stay goes on with.",
        {
            "access": text("Send it as `Authorization: Bearer ...`; lives for 15 minutes."),
            "refresh": text("Brings the next pair, once; lives for 30 days."),
        },
    ),
}

OPERATIONS = {
    "POST /v1/users": Operation(
        id="signUp",
        tag=TAG,
        summary="Sign up",
        description="Makes a customer. A name that is taken, and a password that is too weak, are 400 and named.",
        body=SIGN_UP,
        example={"username": "an.nguyen", "password": "correct horse battery"},
        answers={
            201: Answer(
                description="The user is there; sign in.",
                schema=ref("User"),
                example={"userId": 7, "username": "an.nguyen"},
            )
        },
        throttled=True,
    ),
    "POST /v1/auth/token": Operation(
        id="signIn",
        tag=TAG,
        summary="Sign in",
        description="Begins a stay of one device. Wrong names and wrong passwords are one answer; guesses at one name "
        "are slowed, and so are too many tries from one address.",
        body=SIGN_IN,
        example={"username": "an.nguyen", "password": "correct horse battery"},
        answers={200: Answer(description="The stay's first tokens.", schema=ref("Tokens"), example=PAIR)},
        errors=[NotAuthenticated],
        throttled=True,
    ),
    "POST /v1/auth/token/refresh": Operation(
        id="refresh",
        tag=TAG,
        summary="Exchange the refresh token",
        description="A refresh token works once. One that was used before ends the whole stay, since nobody can tell "
        "who has it: then the user signs in again.",
        body=REFRESH,
        example={"refresh": TOKEN},
        answers={200: Answer(description="The next tokens.", schema=ref("Tokens"), example=PAIR)},
        errors=[TokenInvalid],
    ),
    "POST /v1/auth/logout": Operation(
        id="signOut",
        tag=TAG,
        summary="Sign out",
        description="Ends the stay that a refresh token belongs to. Doing so twice is no fault.",
        body=REFRESH,
        example={"refresh": TOKEN},
        answers={204: Answer(description="The stay has ended.")},
        errors=[TokenInvalid],
    ),
}

CHAPTER = Chapter(operations=OPERATIONS, schemas=SCHEMAS)
