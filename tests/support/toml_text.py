"""Values as TOML, for files made up by tests."""


def render_toml(value: object) -> str:
    """A TOML value; not pretty, but every character is allowed in."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(render_toml, value))}]"
    if isinstance(value, dict):
        inner = ", ".join(
            f"{render_toml(key)} = {render_toml(each)}" for key, each in value.items()
        )
        return f"{{{inner}}}"
    assert isinstance(value, str)
    escaped = "".join(c if c.isalnum() else f"\\U{ord(c):08x}" for c in value)
    return f'"{escaped}"'
