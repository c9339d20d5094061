"""otel-blackboard: every run of an AI agent as a glass box, out of its OpenTelemetry.

This is the face for agents and stays light: importing it loads none of the service's libraries.
"""

from importlib.metadata import version

__version__ = version("otel-blackboard")

__all__ = ["__version__"]
