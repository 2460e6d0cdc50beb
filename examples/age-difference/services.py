"""Stubs of the search service and the model that plan.json needs: scripted answers, no API key, no network.

`python examples/age-difference/services.py` prints the variables to export, and serves until it is stopped. Each answer
can be requested repeatedly.
"""

import asyncio
import sys

from dagwright.testing import ANY_NUMBER, ModelServer, SearchAnswer, SearchHit, SearchServer, When, json_text, step

WU = SearchAnswer(
    (
        SearchHit("He was born in 156 BC and died on 29 March 87 BC, at the age of 69.", "Emperor Wu of Han"),
        SearchHit("His reign of 54 years was the longest for 1,800 years.", "The Han dynasty"),
    )
)
CAESAR = SearchAnswer(
    (SearchHit("Caesar was killed on the Ides of March, 44 BC.", "Julius Caesar"),),
    answer=SearchHit("55 years", "Julius Caesar, age at death"),
)
SEARCHES = {"age of Emperor Wu of Han at death": WU, "age of Julius Caesar at death": CAESAR}
CALCULATION_ANSWER = json_text({"is_calculation": True, "expression": "69 - 55", "reason": ""})
CALL_METADATA = {"purpose": "calculate"}

_MAX_RUNS = 1_000
"""Number of runs that the stubs can serve before they must be restarted."""


async def main() -> None:
    """Serve until the process is stopped."""
    model = ModelServer(step(CALCULATION_ANSWER, when=When(metadata=CALL_METADATA), times=ANY_NUMBER))
    search = SearchServer({query: [answer] * _MAX_RUNS for query, answer in SEARCHES.items()})
    await model.__aenter__()
    await search.__aenter__()
    variables = {
        "SERPER_BASE_URL": search.base_url,
        "SERPER_API_KEY": "any",
        "OPENAI_BASE_URL": model.base_url,
        "OPENAI_API_KEY": "any",
        "DAGWRIGHT_MODEL": "scripted-model",
    }
    sys.stdout.write("".join(f"export {name}={value}\n" for name, value in variables.items()))
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except KeyboardInterrupt:
        sys.exit(0)
