"""Texts without the secrets that URLs in them carry: passwords, keys, tokens, signatures."""

import re

SECRET_WORDS = ("pass", "secret", "token", "key", "credential", "sig")
"""What the name of a URL's parameter holds whose value is not shown."""
HIDDEN = "***"
_USER_INFO = re.compile(r"([A-Za-z][\w+.-]*://[^/?#\s'\"@:]*):[^/?#\s'\"]*@")
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
