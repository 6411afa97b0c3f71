"""`a44 config`: the settings in force and where each came from, secrets masked."""

from pathlib import Path

from ops.cli.access import chosen_profile, find_access
from ops.cli.credentials import home
from ops.cli.failures import OK
from ops.cli.options import ConfigOption, JsonOption
from ops.cli.output import Output, text_of


def config(config_file: ConfigOption = None, as_json: JsonOption = False) -> int:
    """Print the settings in force and where each came from.

    Secrets are masked. Settings come from A44_<NAME> in the environment, over a settings file, over the defaults.
    What the client commands use (service, project, token) comes from options, environment or login.
    """
    from ops.settings import MASK, load

    output = Output(as_json)
    loaded = load(Path(config_file) if config_file else None)
    access = find_access()
    client: dict[str, dict[str, object]] = {
        "url": {"value": access.url, "source": access.sources["url"]},
        "profile": {"value": access.profile, "source": chosen_profile()[1] if chosen_profile()[0] else "login"},
        "project": {"value": access.project, "source": access.sources["project"]},
        "token": {"value": MASK if access.token else None, "source": access.sources["token"]},
        "home": {"value": str(home()), "source": "A44_HOME or default"},
    }
    for warning in loaded.warnings:
        output.note(f"warning: {warning}")
    shown = loaded.shown()
    if as_json:
        file = str(loaded.file) if loaded.file else None
        output.document({"file": file, "settings": shown, "client": client})
        return OK
    output.line(f"settings file: {loaded.file or 'none'}")
    rows = [[name, _cell(item["value"]), str(item["source"]), str(item["description"])] for name, item in shown.items()]
    output.table(("SETTING", "VALUE", "FROM", "WHAT IT DOES (WHO READS IT)"), rows)
    output.line()
    client_rows = [[name, _cell(item["value"]), str(item["source"])] for name, item in client.items()]
    output.table(("CLIENT", "VALUE", "FROM"), client_rows)
    return OK


def _cell(value: object) -> str:
    return text_of(value) or "(not set)"
