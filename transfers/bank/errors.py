"""Refusals of the bank's notices."""

from wallet_project.kernel.errors import Unauthenticated


class SignatureInvalid(Unauthenticated):
    """The notice is not signed with a secret of ours, or was signed too long ago or ahead of our clock."""

    code = "signature_invalid"
    title = "Signature invalid"
