"""`chat`: a conversation at a terminal or through a pipe. Each message is a turn of a session.

Like `ask`, the command runs a worker that serves the session and its runs. After the command has ended, another command
can continue the session and its runs.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypeVar
from uuid import uuid4

from temporalio.service import RPCError

from dagwright.client.errors import CommandRejected, FeedbackRejected, SessionNotFound, TurnRejected
from dagwright.client.feedback.answer_sending import answer_request
from dagwright.client.feedback.open_requests import Answer
from dagwright.client.requests import TurnRequest, start_turn
from dagwright.client.run_follower import RequestKey, request_key
from dagwright.client.runs import namespace_runs
from dagwright.client.sessions import Sessions
from dagwright.client.starts import new_run_id
from dagwright.client.steering import CommandAuthor, Steering
from dagwright.history.executions import RunClosed
from dagwright.interfaces.cli.answer_prompts import ask_answer
from dagwright.interfaces.cli.background import options_of
from dagwright.interfaces.cli.chat_input import Interrupted, Messages, PipedMessages, TypedMessages
from dagwright.interfaces.cli.chat_text import (
    TURNS_LISTED,
    TURNS_SHOWN,
    ChatInput,
    chat_options,
    command_hint,
    continue_hint,
    help_lines,
    parse_input,
    status_line,
    unknown_command_message,
)
from dagwright.interfaces.cli.command_arguments import account_name, reject_lone_surrogates
from dagwright.interfaces.cli.command_connection import command_settings
from dagwright.interfaces.cli.command_loop import InterruptHandling, run_async
from dagwright.interfaces.cli.exit_codes import CommandError, ExitCode, exit_code_of
from dagwright.interfaces.cli.follow_run import RunFollower
from dagwright.interfaces.cli.goal_commands import AskRequest, ChatArguments
from dagwright.interfaces.cli.model_choice import require_model
from dagwright.interfaces.cli.output import Output, one_line
from dagwright.interfaces.cli.prepare_request import prepare_turn
from dagwright.interfaces.cli.process_exit import end_process_at_once
from dagwright.interfaces.cli.request_text import Request, answer_command
from dagwright.interfaces.cli.round_text import final_round_lines
from dagwright.interfaces.cli.run_and_watch import continues_message
from dagwright.interfaces.cli.run_host import open_start_connection, serving_toolset
from dagwright.interfaces.cli.run_summary import intent_result_lines, print_answer, print_answer_end
from dagwright.interfaces.cli.session_command import turn_lines
from dagwright.interfaces.cli.session_turns import busy_session_text, command_error_of
from dagwright.planning.plan_and_execute.goal_spec import PROFILES, Profile
from dagwright.protocol.sessions import SessionIdInvalid, Turn, normalized_session_name
from dagwright.server import UNREACHABLE_STATUSES, Connection, ServerUnreachable, open_connection
from dagwright.settings import Settings
from dagwright.toolset.toolset import Toolset, load_toolset, references_of

if TYPE_CHECKING:
    from dagwright.client.runs import Runs
    from dagwright.history.run_view import RunView

T = TypeVar("T")

RETRY_INTERVAL_S = 1.0
"""Interval between two attempts to connect to the server, in seconds."""
ACTIVE_RUN_TIMEOUT_S = 3.0
"""How long to look for the active run of the session after Ctrl-C, in seconds."""

_HISTORY_FILE = "chat-history"
_PROFILES: Sequence[Profile | Literal["rounds"]] = (*PROFILES, "rounds")
_QUIT_COMMANDS = ("/quit", "/exit", "/bye")


def chat(arguments: ChatArguments, output: Output) -> int:
    """Answer messages until the input ends, and return the exit code.

    Raises:
        CommandError: the options are invalid.
        SessionIdInvalid: the session ID is invalid.
    """
    settings = command_settings()
    toolset = load_toolset(settings, references_of(arguments.tools, arguments.agents, arguments.tools_queue))
    session_name = (
        _new_session_name() if arguments.session_id is None else normalized_session_name(arguments.session_id)
    )
    ask_request = arguments.ask_request()
    # Invalid options are reported before there is a server.
    prepare_turn(replace(ask_request, text="Hello."), toolset, output)
    require_model(arguments.model, settings, toolset, is_detached=False)

    async def work(interrupt_handling: InterruptHandling) -> int:
        async with open_start_connection(settings, toolset) as connection, AsyncExitStack() as stack:
            # The worker also serves the session: without a worker, the session accepts no turns.
            await stack.enter_async_context(serving_toolset(connection.client, toolset, settings=settings))
            resources = ChatResources(connection, settings, toolset, stack)
            messages = TypedMessages(settings.state_dir / _HISTORY_FILE) if output.can_ask else PipedMessages()
            conversation = Chat(resources, messages, ask_request, output=output, interrupt_handling=interrupt_handling)
            code = await conversation.answer_messages(session_name, is_new=arguments.session_id is None)
            # Steps that do not end in time are abandoned, but their runs continue.
            interrupt_handling.exit_watchdog.start(code)
            if code == ExitCode.INTERRUPTED:
                # The user has already pressed Ctrl-C twice.
                interrupt_handling.on_next_interrupt = end_process_at_once
                message = "running steps get 10 s to finish; Ctrl-C again ends the process"
                asyncio.get_running_loop().call_later(1.0, output.log, message)
            return code

    return run_async(work, output)


def _new_session_name() -> str:
    return f"chat-{datetime.now().astimezone():%Y-%m-%d}-{uuid4().hex[:6]}"


@dataclass(frozen=True, slots=True)
class ChatResources:
    """Connection, settings and tools of a chat.

    Args:
        connection: connection to the server of the session.
        exit_stack: resources to release at the end of the chat, such as a restarted server.
    """

    connection: Connection
    settings: Settings
    toolset: Toolset
    exit_stack: AsyncExitStack

    @property
    def runs(self) -> "Runs":
        """The runs of the turns."""
        return namespace_runs(self.connection, self.settings)

    @property
    def sessions(self) -> Sessions:
        """The sessions of the task queue."""
        return Sessions(self.connection, self.runs, task_queue=self.settings.task_queue)

    async def wait_for_server(self) -> None:
        """Wait until the server responds; restart a local server."""
        while True:
            try:
                await self.exit_stack.enter_async_context(open_connection(self.settings))
                return
            except ServerUnreachable:
                await asyncio.sleep(RETRY_INTERVAL_S)


class Chat:
    """A conversation, which may use several sessions.

    Args:
        resources: connection, settings and tools.
        messages: the input.
        ask_request: options of each message.
        output, interrupt_handling: as for other commands.
    """

    def __init__(
        self,
        resources: ChatResources,
        messages: Messages,
        ask_request: AskRequest,
        *,
        output: Output,
        interrupt_handling: InterruptHandling,
    ) -> None:
        self._resources = resources
        self._messages = messages
        self._ask_request = ask_request
        self._initial_ask_request = ask_request
        self._output = output
        self._interrupt_handling = interrupt_handling
        self._session_name = ""

    async def answer_messages(self, name: str, *, is_new: bool) -> int:
        """Answer messages until the chat ends, and return the exit code.

        With a pipe as input, return the exit code of the first message that failed, or 0 if no message failed.
        """
        first_error_code = int(ExitCode.COMPLETED)
        ends_at_next_interrupt = not await self._run_interruptible(self._open_session(name, is_new=is_new))
        while True:
            try:
                line = await self._messages.next()
            except Interrupted:
                if ends_at_next_interrupt:
                    return ExitCode.INTERRUPTED
                ends_at_next_interrupt = True
                self._output.print("Ctrl-C again ends the chat, and so does Ctrl-D")
                continue
            chat_input = ChatInput("/quit", "") if line is None else parse_input(line)
            if chat_input.command in _QUIT_COMMANDS:
                break
            if chat_input.command is not None:
                ends_at_next_interrupt = not await self._run_interruptible(self._run_command(chat_input))
            elif self._output.can_ask and (hint := command_hint(chat_input.text)) is not None:
                self._output.print(hint)
            elif chat_input.text:
                codes: list[int] = []
                ends_at_next_interrupt = not await self._run_interruptible(self._answer(chat_input.text, codes))
                first_error_code = next(filter(None, [first_error_code, *codes]), first_error_code)
        self._output.print(self._continue_hint())
        return ExitCode.COMPLETED if self._output.can_ask else first_error_code

    async def _run_interruptible(self, work: Coroutine[Any, Any, None]) -> bool:
        """Run work that the user can interrupt; return false if Ctrl-C interrupted the work."""
        work_task = asyncio.create_task(work)
        if self._output.can_ask:
            self._interrupt_handling.on_next_interrupt = work_task.cancel
        try:
            await work_task
        except Interrupted:
            return await self._report_interrupted_turn()
        except asyncio.CancelledError:
            current_task = asyncio.current_task()
            if current_task is not None and current_task.cancelling():
                raise
            return await self._report_interrupted_turn()
        except (CommandError, SessionNotFound, SessionIdInvalid) as error:
            self._output.log(str(error))
        finally:
            self._interrupt_handling.on_next_interrupt = None
        return True

    async def _report_interrupted_turn(self) -> bool:
        """Report how to continue the turn that the user has interrupted. Return false for `_run_interruptible`."""
        if self._output.can_ask:
            # Reading the session may hang, and a second Ctrl-C must end the process immediately.
            self._interrupt_handling.on_next_interrupt = end_process_at_once
        try:
            async with asyncio.timeout(ACTIVE_RUN_TIMEOUT_S):
                turn = await self._running_turn()
        except (TimeoutError, RPCError) as error:
            if isinstance(error, RPCError) and error.status not in UNREACHABLE_STATUSES:
                raise
            self._output.print(
                "the Temporal server does not respond; a started run continues; Ctrl-C again ends the chat"
            )
            return False
        if turn is None:
            self._output.print("no run is active")
        else:
            run_id = one_line(turn.run_id)
            self._output.print(
                f"the run {run_id} continues, and the next message waits for it; /cancel cancels it, `dagwright watch "
                f"{run_id}` shows it in another terminal; Ctrl-C again ends the chat"
            )
        return False

    async def _running_turn(self) -> Turn | None:
        return (await self._resources.sessions.read(self._session_name)).session.running_turn

    # Sessions.

    def _continue_hint(self) -> str:
        return continue_hint(
            self._session_name, [*chat_options(self._ask_request), *options_of(self._resources.toolset)]
        )

    async def _open_session(self, name: str, *, is_new: bool) -> None:
        """Open a session. For an existing session, show the last turns and follow the active run."""
        self._session_name = name
        session = (await self._run_with_retries(lambda: self._resources.sessions.read(name))).session
        session = await self._resources.sessions.with_full_answers(session)
        if is_new:
            self._output.print(f"session {one_line(name)}; {self._continue_hint()}")
            self._output.print("/help lists the commands")
            return
        self._output.print(status_line(session, profile=self._ask_request.profile))
        for turn in [turn for turn in session.turns if turn.ended_at is not None][-TURNS_SHOWN:]:
            self._output.print(f"\n> {turn.request or '(a plan)'}")
            if turn.answer is None:
                self._output.print(turn_lines([turn])[1].strip())
            else:
                self._output.answer(turn.answer)
        if session.running_turn is not None and self._output.can_ask:
            await self._run_with_retries(
                lambda: self._follow_and_show(str(session.running_turn and session.running_turn.run_id), None)
            )

    async def _run_command(self, chat_input: ChatInput) -> None:
        """Run a chat command."""
        match chat_input.command:
            case "/help":
                for line in help_lines():
                    self._output.print(line)
            case "/status":
                view = await self._run_with_retries(lambda: self._resources.sessions.read(self._session_name))
                self._output.print(status_line(view.session, profile=self._ask_request.profile))
            case "/turns":
                view = await self._run_with_retries(lambda: self._resources.sessions.read(self._session_name))
                for line in turn_lines(view.session.turns[-TURNS_LISTED:]) or ["there are no turns yet"]:
                    self._output.print(line)
            case "/profile":
                self._choose_profile(chat_input.text)
            case "/cancel":
                await self._cancel()
            case "/new":
                name = normalized_session_name(chat_input.text) if chat_input.text else _new_session_name()
                await self._open_session(name, is_new=not chat_input.text)
            case _:
                raise CommandError(unknown_command_message(str(chat_input.command)))

    def _choose_profile(self, name: str) -> None:
        chosen_profile = next((profile for profile in _PROFILES if profile == name), None)
        if name and chosen_profile is None:
            raise CommandError(f"unknown profile {one_line(name)}; choose {', '.join(_PROFILES)}")
        if chosen_profile is not None:
            # The three options below apply to rounds only.
            option_source = self._initial_ask_request if chosen_profile == "rounds" else AskRequest(text="")
            changed_request = replace(
                self._ask_request,
                profile=chosen_profile,
                max_rounds=option_source.max_rounds,
                worker_timeout=option_source.worker_timeout,
                synthesis=option_source.synthesis,
            )
            prepare_turn(replace(changed_request, text="Hello."), self._resources.toolset, self._output)
            self._ask_request = changed_request
        self._output.print(f"the profile of the next messages is {self._ask_request.profile}")

    async def _cancel(self) -> None:
        turn = await self._running_turn()
        if turn is None:
            raise CommandError("no run is active")
        try:
            self._output.print(
                await Steering(self._resources.connection).cancel(turn.run_id, CommandAuthor(account_name()))
            )
        except (CommandRejected, RunClosed) as error:
            self._output.log(one_line(str(error)))
        await self._run_with_retries(lambda: self._follow_and_show(turn.run_id, None))

    # Turns.

    async def _answer(self, message: str, codes: list[int]) -> None:
        """Answer a message, and append the exit code to `codes` unless the work is interrupted."""
        run_id = new_run_id()
        self._interrupt_handling.text = continues_message(run_id)
        try:
            # The start of a turn is idempotent by its run ID, so the start can be retried.
            codes.append(await self._run_with_retries(lambda: self._run_turn(run_id, message)))
        except CommandError as error:
            codes.append(error.code.exit_code)
            if self._output.is_json:
                document = {
                    "session_id": self._session_name,
                    "request": message,
                    "code": error.code,
                    "message": str(error),
                }
                self._output.document(document, is_single_line=True)
            raise

    async def _run_turn(self, run_id: str, message: str) -> int:
        resources = self._resources
        ask_request = replace(self._ask_request, text=message, run_id=run_id, session_id=self._session_name)
        reject_lone_surrogates(ask_request)
        turn_request = TurnRequest(
            self._session_name,
            message,
            lambda session: prepare_turn(ask_request, resources.toolset, self._output, session),
        )
        while True:
            try:
                await start_turn(turn_request, resources.runs, resources.sessions, run_id=run_id)
                break
            except TurnRejected as rejection:
                if rejection.code != "session_busy":
                    raise command_error_of(rejection) from None
                # The running turn may have ended in the meantime.
                if (running_turn := await self._running_turn()) is not None:
                    busy_text = busy_session_text(self._session_name, running_turn)
                    self._output.log(f"{busy_text}; this message waits for the end of that run")
                    await self._follow_and_show(running_turn.run_id, None)
        return await self._follow_and_show(run_id, message)

    async def _follow_and_show(self, run_id: str, message: str | None) -> int:
        """Follow a run to its end and show its answer; return its exit code.

        Args:
            message: the message that the run answers; `None` for the run of an earlier message.
        """
        runs = self._resources.runs
        view = await self._follow_to_end(run_id)
        document = await runs.document(view)
        await self._resources.sessions.wait_for_turn_end(self._session_name, run_id)
        if not self._output.is_json:
            self._print_turn_end(view, document)
        elif message is not None:
            self._output.document(
                {"session_id": self._session_name, "request": message, **document}, is_single_line=True
            )
        return exit_code_of(view.status)

    async def _follow_to_end(self, run_id: str) -> "RunView":
        """Follow a run until it ends, and ask the user to answer its open requests."""
        run_follower = RunFollower(self._resources.runs, self._resources.connection.client, run_id, output=self._output)
        seen_requests: set[RequestKey] = set()

        def next_unanswered_request() -> Request | None:
            return next(
                (request for request in run_follower.requests if request_key(request) not in seen_requests), None
            )

        try:
            while True:
                view = await run_follower.follow_until(
                    lambda _: self._output.can_ask and next_unanswered_request() is not None
                )
                request = next_unanswered_request()
                if view.is_closed or request is None:
                    return view
                seen_requests.add(request_key(request))
                await self._ask(request)
        finally:
            await run_follower.close()

    async def _ask(self, request: Request) -> None:
        """Ask the user to answer a request of a run. Without an answer, the request stays open."""
        feedback, loop = self._resources.runs.feedback, asyncio.get_running_loop()

        def read_line(question: str) -> str:
            return asyncio.run_coroutine_threadsafe(self._messages.ask(question), loop).result()

        try:
            # In a thread, so that the loop continues to serve tools.
            content = await asyncio.to_thread(ask_answer, request, read_line=read_line)
            answer = Answer(content, account_name())
            self._output.print(await answer_request(feedback, request["run_id"], request["request_id"], answer))
        except CommandError as error:
            self._output.log(f"{error}: {answer_command(request)}")
        except (FeedbackRejected, RunClosed) as error:
            self._output.log(one_line(str(error)))

    async def _run_with_retries(self, work: Callable[[], Awaitable[T]]) -> T:
        """Run the work. If the server does not respond, wait for the server and retry."""
        is_reported = False
        while True:
            try:
                return await work()
            except RPCError as error:
                if error.status not in UNREACHABLE_STATUSES:
                    raise
            if not is_reported:
                self._output.log("the Temporal server does not respond; waiting for it")
                is_reported = True
            await self._resources.wait_for_server()

    # Output.

    def _print_turn_end(self, view: "RunView", document: Mapping[str, Any]) -> None:
        answer = document["output"]
        if isinstance(answer, str) and next(intent_result_lines(document), None) is None:
            if self._output.is_terminal:
                # The final progress on a terminal omits the rounds. Without a terminal, the rounds were logged earlier.
                for line in final_round_lines(document):
                    self._output.print(line)
                self._output.print("")
            self._output.answer(answer)
            print_answer_end(view, document, self._output)
        else:
            print_answer(view, document, self._output)
