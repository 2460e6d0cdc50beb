// Does what a program does with a gateway whose address is the first argument; writes what it got as JSON.
import OpenAI, { NotFoundError } from "openai";

const client = new OpenAI({ baseURL: process.argv[2], apiKey: "none", maxRetries: 0 });
const messages = [{ role: "user", content: "{}" }];
const found = {};

found.models = [];
for await (const model of client.models.list()) found.models.push(model.id);

const whole = await client.chat.completions.create({ model: "plan/chain", messages }).withResponse();
found.whole = whole.data.choices[0].message.content;
found.run = whole.response.headers.get("x-run-id") === whole.data.dagwright.run_id;

found.streams = {};
for (const stream_progress of ["content", "progress", "full"]) {
  const stream = await client.chat.completions.create({ model: "plan/chain", messages, stream: true, stream_progress });
  let text = "";
  const events = [];
  for await (const chunk of stream) {
    // As most programs read it, with no look at what a chunk holds.
    text += chunk.choices[0].delta.content ?? "";
    if (chunk.dagwright?.events) events.push(...chunk.dagwright.events.map((event) => event.type));
  }
  found.streams[stream_progress] = { text, events };
}

// The helpers put chunks together and check them.
const helper = client.chat.completions.stream({ model: "plan/chain", messages, stream_progress: "full" });
found.helper = (await helper.finalChatCompletion()).choices[0].message.content;

const asked = (await client.chat.completions.create({ model: "plan/asking", messages })).choices[0];
const results = asked.message.tool_calls.map((call) => ({ role: "tool", tool_call_id: call.id, content: "yes" }));
const done = await client.chat.completions.create({
  model: "plan/asking",
  messages: [...messages, asked.message, ...results],
});
found.asked = [asked.finish_reason, asked.message.tool_calls[0].function.name, done.choices[0].message.content];

const streamed = client.chat.completions.stream({ model: "plan/asking", messages });
found.askedInStream = (await streamed.finalChatCompletion()).choices[0].message.tool_calls[0].function.name;

const response = await client.responses.create({ model: "plan/chain", input: "{}", stream: true, stream_progress: "full" });
found.response = "";
for await (const event of response) if (event.type === "response.output_text.delta") found.response += event.delta;

// The helper raises at types of events that it does not know.
const inResponses = client.responses.stream({ model: "plan/chain", input: "{}", stream_progress: "full" });
found.progressOfResponse = [];
for await (const event of inResponses) {
  for (const each of event.dagwright?.events ?? []) found.progressOfResponse.push(each.type);
}
const finalResponse = await inResponses.finalResponse();
found.responseHelper = finalResponse.output_text;

// Streamed again by its id: from the first event on, and behind one that was seen.
const again = client.responses.stream({ response_id: finalResponse.id });
found.streamedAgain = (await again.finalResponse()).output_text;
const seen = [];
for await (const event of await client.responses.retrieve(finalResponse.id, { stream: true })) seen.push(event);
found.resumedStream = [];
const after = seen.findIndex((event) => event.type === "response.output_text.delta");
const rest = { stream: true, starting_after: seen[after].sequence_number };
for await (const event of await client.responses.retrieve(finalResponse.id, rest)) found.resumedStream.push(event.type);
found.resumedStream = [found.resumedStream.join() === seen.slice(after + 1).map((event) => event.type).join(), found.resumedStream.at(-1)];

const begun = await client.responses.create({ model: "plan/chain", input: "{}", background: true });
let fetched = begun;
while (fetched.status === "in_progress") fetched = await client.responses.retrieve(begun.id);
found.fetched = fetched.output_text;

try {
  await client.chat.completions.create({ model: "plan/none", messages });
} catch (error) {
  found.error = [error instanceof NotFoundError, error.code];
}
console.log(JSON.stringify(found));
