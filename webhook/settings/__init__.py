"""Every setting of the webhook, declared once.

A value is taken from the command line, else from the environment (`STOWPLAN_<NAME>`), else from
the configuration file, else from the default here. The help of the command line shows these
descriptions.
"""

from webhook.settings.sections import QuotaRollout
from webhook.settings.settings import ServeSettings, Settings, SettingsError, ShownEnvironment

__all__ = ["QuotaRollout", "ServeSettings", "Settings", "SettingsError", "ShownEnvironment"]
