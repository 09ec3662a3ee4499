"""The onboarding flows as MCP prompts: a person picks one, the model gets the report and what may come next.

Getting a prompt changes nothing: a flow that would change something gives its plan.
"""

from typing import Any, cast

from ..context import Context
from ..errors import BadArgs, InvalidArgument
from ..gate.dispatch import SCOPE, Gate
from ..gate.render import RenderedReply, neutral
from ..session import Session
from ..tools.linux_ops.onboarding import FLOWS, Flow, FlowReport, as_text, linux_mcp_run_onboarding, switched_off

_TOOL = linux_mcp_run_onboarding.__name__


class PromptRequest(RenderedReply):
    """A prompt as it is sent: its text and description."""

    description: str = ""


class Prompts:
    """Lists and makes prompts."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def flows(self) -> dict[str, Flow]:
        """The flows that are enabled."""
        return {name: flow for name, flow in FLOWS.items() if switched_off(self._gate.app, flow) is None}

    def listed(self, who: Session) -> list[dict[str, Any]]:
        """For prompts/list."""
        return [_entry(name, flow) for name, flow in self.flows().items()] if who.may(SCOPE) else []

    def get(self, ctx: Context, name: object, arguments: object) -> PromptRequest:
        """A flow's report as a message for the model."""

        def answer() -> PromptRequest:
            flow, given = self._checked(name, arguments)
            self._gate.refuse_as(ctx, _TOOL, {"flow_name": name, **given})
            report = flow.run(ctx, given.get("path"), False)
            return PromptRequest(self._message(flow, given, report), None, flow.title)

        return self._gate.ask(ctx, "prompts/get", {"name": name, "arguments": arguments}, answer)

    def _checked(self, name: object, arguments: object) -> tuple[Flow, dict[str, str]]:
        flows = self.flows()
        flow = flows.get(name) if isinstance(name, str) else None
        if flow is None:
            raise InvalidArgument(f"there is no prompt {str(name)[:60]!r}", hint=f"Prompts: {', '.join(flows)}.")
        if arguments is not None and not isinstance(arguments, dict):
            raise BadArgs("the arguments of a prompt are an object of strings")
        given = cast(dict[object, object], arguments or {})
        known = [argument.name for argument in flow.arguments]
        for key, value in given.items():
            if key not in known:
                raise BadArgs(
                    f"the prompt {name} has no argument {str(key)[:60]!r}",
                    hint=f"Arguments: {', '.join(known) or 'none'}.",
                )
            if not isinstance(value, str):
                raise BadArgs(f"the argument {key!r} must be a string")
        filled = {key: value for key, value in cast(dict[str, str], given).items() if value}  # a form's empty field
        missing = [argument.name for argument in flow.arguments if argument.required and argument.name not in filled]
        if missing:
            raise BadArgs(f"the prompt {name} needs the argument {missing[0]!r}")
        return flow, filled

    def _message(self, flow: Flow, given: dict[str, str], report: FlowReport) -> str:
        lines = [flow.request, "", "The server looked already. Its report:", "", as_text(report)]
        if report.proposed and _TOOL in self._gate.catalog.tools:
            path = f", path={given['path']!r}" if given.get("path") else ""
            lines += [
                "",
                f"Nothing was changed. Ask me first; then {_TOOL}(flow_name={report.flow!r}, apply=true{path}).",
            ]
        return neutral("\n".join(lines))


def _entry(name: str, flow: Flow) -> dict[str, Any]:
    arguments = [
        {"name": argument.name, "description": argument.description, "required": argument.required}
        for argument in flow.arguments
    ]
    return {"name": name, "title": flow.title, "description": flow.description, "arguments": arguments}
