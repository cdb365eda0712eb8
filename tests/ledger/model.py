"""A ledger of a few lines, which says what must come of every command; `test_model_ledger` compares."""

from dataclasses import dataclass, field

from wallet_project.kernel.money import MAX_AMOUNT

SYSTEM = "system"


@dataclass
class Wallet:
    """A wallet of the model."""

    owner: str
    currency: str
    balance: int = 0
    held: int = 0
    frozen: bool = False
    closed: bool = False


@dataclass
class Promise:
    """A hold of the model; it has ended when nothing is left."""

    source: int
    payee: int | None
    left: int


@dataclass
class Model:
    """A ledger in a few lines. Each method says what must come of a command, and does it."""

    wallets: dict[int, Wallet] = field(default_factory=dict)
    disabled: set[str] = field(default_factory=set)
    keys: dict[tuple[str, str], tuple[object, ...]] = field(default_factory=dict)
    left: dict[object, tuple[int, int, int]] = field(default_factory=dict)  # per transfer: source, target, what is left
    holds: dict[object, Promise] = field(default_factory=dict)
    releases: int = 0

    def _known(self, who: str, key: str, body: tuple[object, ...]) -> str | None:
        if who in self.disabled:
            return "token_invalid"
        known = self.keys.get((who, key))
        if known is None:
            return None
        return "replayed" if known == body else "idempotency_key_reused"

    def opens(self, who: str, key: str, currency: str) -> str:
        body = ("open", currency)
        verdict = self._known(who, key, body)
        if verdict is None:
            self.keys[who, key] = body
        return verdict or "done"

    def closes(self, who: str, key: str, number: int) -> str:
        body = ("close", number)
        wallet = self.wallets.get(number)
        verdict = self._known(who, key, body)
        if verdict is not None:
            return verdict
        if wallet is None or wallet.owner != who:
            return "not_found"
        if wallet.closed or wallet.frozen or wallet.balance or wallet.held:
            return "illegal_state"
        wallet.closed = True
        self.keys[who, key] = body
        return "done"

    def receives(self, key: str, number: int, amount: int) -> str:
        body = ("fund", number, amount)
        verdict = self._known(SYSTEM, key, body)
        if verdict is not None:
            return verdict
        wallet = self.wallets[number]
        if wallet.closed:
            return "account_closed"
        if wallet.balance + amount > MAX_AMOUNT:
            return "balance_limit_exceeded"
        wallet.balance += amount
        self.keys[SYSTEM, key] = body
        return "posted"

    def pays(self, who: str, key: str, source: int, target: int, amount: int, *, kind: str = "transfer") -> str:
        body = (kind, source, target, amount)
        verdict = self._known(who, key, body) or self._refusal(who, source, target, amount)
        if verdict is not None:
            return verdict
        self.wallets[source].balance -= amount
        self.wallets[target].balance += amount
        self.keys[who, key] = body
        return "posted"

    def reverses(self, who: str, key: str, of: object, amount: int | None) -> str:
        """`of` is a transfer that `left` knows; no amount is all that is left."""
        body = ("reverse", of, amount)
        source, target, left = self.left[of]
        going_back = left if amount is None else amount
        verdict = self._known(who, key, body) or self._obstacle(source, target, left, going_back)
        if verdict is not None:
            return verdict
        self.wallets[target].balance -= going_back
        self.wallets[source].balance += going_back
        self.left[of] = (source, target, left - going_back)
        self.keys[who, key] = body
        return "posted"

    def reserves(self, who: str, key: str, source: int, payee: int | None, amount: int) -> str:
        """The caller notes the hold in `holds` when it was made."""
        body = ("reserve", source, payee, amount)
        verdict = self._known(who, key, body) or self._refusal(who, source, payee, amount, arrives=False)
        if verdict is not None:
            return verdict
        self.wallets[source].balance -= amount
        self.wallets[source].held += amount
        self.keys[who, key] = body
        return "done"

    def captures(
        self, who: str, key: str, of: object, amount: int | None, payee: int | None, *, final: bool
    ) -> tuple[str, int, int]:
        """What is said; and who gets how much."""
        body = ("capture", of, amount, payee, final)
        hold = self.holds[of]
        target, taken = hold.payee or payee or 0, hold.left if amount is None else amount
        back = hold.left - taken if final else 0
        verdict = self._known(who, key, body) or self._refused_capture(who, hold, payee, taken, back)
        if verdict is None:
            self.wallets[target].balance += taken
            hold.left -= taken
            self.wallets[hold.source].held -= taken
            self._gives_back(hold, back)
            self.keys[who, key] = body
        return verdict or "done", target, taken

    def _refused_capture(self, who: str, hold: Promise, named: int | None, taken: int, back: int) -> str | None:
        target = hold.payee or named
        if self.wallets[hold.payee or hold.source].owner != who:
            return "not_found"
        if target is None or named not in (None, target):
            return "invalid_request"
        if target == hold.source:
            return "same_account"
        if target not in self.wallets:
            return "not_found"
        payer, payee = self.wallets[hold.source], self.wallets[target]
        faults = {
            "illegal_state": hold.left == 0,
            "account_closed": payee.closed,
            "account_frozen": hold.payee is None and payer.frozen,
            "currency_mismatch": payee.currency != payer.currency,
            "capture_exceeds_hold": taken > hold.left,
            "balance_limit_exceeded": payee.balance + taken > MAX_AMOUNT or payer.balance + back > MAX_AMOUNT,
        }
        return next((code for code, is_so in faults.items() if is_so), None)

    def voids(self, who: str, key: str, of: object) -> str:
        body = ("void", of)
        hold = self.holds[of]
        verdict = self._known(who, key, body)
        if verdict is not None:
            return verdict
        if self.wallets[hold.payee or hold.source].owner != who:
            return "not_found"
        if hold.left == 0:
            return "illegal_state"
        if self.wallets[hold.source].balance + hold.left > MAX_AMOUNT:
            return "balance_limit_exceeded"
        self._gives_back(hold, hold.left)
        self.keys[who, key] = body
        return "done"

    def expires(self, of: object) -> bool:
        """Whether it is given back now that its time is over."""
        hold = self.holds[of]
        if hold.left == 0 or self.wallets[hold.source].balance + hold.left > MAX_AMOUNT:
            return False
        self._gives_back(hold, hold.left)
        return True

    def _gives_back(self, hold: Promise, amount: int) -> None:
        if amount:
            self.wallets[hold.source].held -= amount
            self.wallets[hold.source].balance += amount
            hold.left -= amount
            self.releases += 1

    def _obstacle(self, source: int, target: int, left: int, going_back: int) -> str | None:
        payer, payee = self.wallets[source], self.wallets[target]
        faults = {
            "already_reversed": left == 0,
            "reversal_exceeds_original": going_back > left,
            "account_closed": payer.closed or payee.closed,
            "insufficient_funds": payee.balance < going_back,
            "balance_limit_exceeded": payer.balance + going_back > MAX_AMOUNT,
        }
        return next((code for code, is_so in faults.items() if is_so), None)

    def _refusal(self, who: str, source: int, target: int | None, amount: int, *, arrives: bool = True) -> str | None:
        if source == target:
            return "same_account"
        if source not in self.wallets or self.wallets[source].owner != who:
            return "not_found"
        if target is not None and target not in self.wallets:
            return "not_found"
        payer, payee = self.wallets[source], self.wallets[source if target is None else target]
        faults = {
            "account_closed": payer.closed or payee.closed,
            "account_frozen": payer.frozen,
            "currency_mismatch": payer.currency != payee.currency,
            "insufficient_funds": payer.balance < amount,
            "balance_limit_exceeded": arrives and payee.balance + amount > MAX_AMOUNT,
        }
        return next((code for code, is_so in faults.items() if is_so), None)

    def freezes(self, number: int) -> str:
        wallet = self.wallets[number]
        if wallet.closed or wallet.frozen:
            return "illegal_state"
        wallet.frozen = True
        return "done"

    def thaws(self, number: int) -> str:
        wallet = self.wallets[number]
        if not wallet.frozen:
            return "illegal_state"
        wallet.frozen = False
        return "done"
