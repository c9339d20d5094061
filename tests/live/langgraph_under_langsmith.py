from scenario import trace_to_service

trace_to_service()

from langchain_core.tracers.langchain import wait_for_all_tracers  # noqa: E402
from langchain_weather import run  # noqa: E402

run()
wait_for_all_tracers()
