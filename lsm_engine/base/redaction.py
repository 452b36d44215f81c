"""Texts without the secrets that URLs in them carry: passwords, keys, tokens, signatures."""

import re

SECRET_WORDS = ("pass", "secret", "token", "key", "credential", "sig")
"""What the name of a URL's parameter holds whose value is not shown."""
HIDDEN = "***"
_USER_INFO = re.compile(r"([A-Za-z][\w+.-]*://[^/?#\s'\"@:]*):(?!\d{1,5}/)[^\s'\"]*@")
"""A password ends at the last "@", as it may hold "@" and "/" itself. Digits before a slash are a port."""
_PARAMETER = re.compile(r"([?&;])([^=&;?#\s'\"]+)=([^&;#\s'\"]*)")


def is_secret(name: str) -> bool:
    """Whether what has this name is not shown."""
    return any(word in name.lower() for word in SECRET_WORDS)


def without_secrets(text: str) -> str:
    """Return a text with the passwords and secret parameters of URLs in it replaced by "***"."""
    if "://" not in text:
        return text
    return _PARAMETER.sub(_shown, _USER_INFO.sub(rf"\1:{HIDDEN}@", text))


def _shown(match: re.Match[str]) -> str:
    value = HIDDEN if is_secret(match[2]) else match[3]
    return f"{match[1]}{match[2]}={value}"


def hidden_in(value: object) -> object:
    """Return a value whose texts are without secrets, those in mappings, lists and tuples too."""
    if isinstance(value, str):
        return without_secrets(value)
    if type(value) is dict:
        return {name: hidden_in(item) for name, item in value.items()}
    if type(value) is list:
        return [hidden_in(item) for item in value]
    if type(value) is tuple:
        return tuple(hidden_in(item) for item in value)
    return value
