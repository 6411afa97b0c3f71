"""`verify` of a webhook: whose way of signing it takes. There is no way to take a webhook that is not signed.

Where no secret is named, the platform makes one (`a44`, `standard-webhooks`, `github`); a sender that hands out its own
(`stripe`, `slack`, `shopify`) has it in a secret of the project, by reference.
"""

from typing import Annotated, Any, Final, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from topology.shapes import SecretId, Spec, fault

OWN: Final = "a44"
HANDED_OUT: Final = frozenset({"stripe", "slack", "shopify"})

Preset = Literal["a44", "standard-webhooks", "github", "stripe", "slack", "shopify"]


class Verify(Spec):
    """`old_secret_ref`: a secret that is taken beside the first, while the sender goes over to another."""

    preset: Preset
    secret_ref: SecretId | None = None
    old_secret_ref: SecretId | None = None

    @model_validator(mode="after")
    def _check_secret(self) -> Self:
        if self.preset in HANDED_OUT and self.secret_ref is None:
            raise fault(f"`{self.preset}` hands out its secret: name it, `secretRef: sec_...`")
        if self.preset == OWN and self.secret_ref is not None:
            raise fault("a webhook of `a44` has a secret that is made here, and rotated by `webhook rotate`")
        if self.old_secret_ref is not None and self.secret_ref in (None, self.old_secret_ref):
            raise fault("`oldSecretRef` names another secret beside `secretRef`", path=("oldSecretRef",))
        return self


def _preset_alone(value: Any) -> Any:
    return {"preset": value} if isinstance(value, str) else value


# Left out of what is stored where it says nothing: definitions that were published before it have the same text.
VerifyField = Annotated[
    Verify | None, BeforeValidator(_preset_alone), Field(default=None, exclude_if=lambda value: value is None)
]
