// Calls a gateway as a program with the OpenAI client does, and writes the results as JSON.
// The first argument is the address of the gateway.
import OpenAI, { NotFoundError } from "openai";

const client = new OpenAI({ baseURL: process.argv[2], apiKey: "none", maxRetries: 0 });
const messages = [{ role: "user", content: "{}" }];
const results = {};

results.models = [];
for await (const model of client.models.list()) results.models.push(model.id);

const complete = await client.chat.completions.create({ model: "plan/chain", messages }).withResponse();
results.complete = complete.data.choices[0].message.content;
results.runIdsMatch = complete.response.headers.get("x-run-id") === complete.data.dagwright.run_id;

results.streams = {};
for (const stream_progress of ["content", "progress", "full"]) {
  const stream = await client.chat.completions.create({ model: "plan/chain", messages, stream: true, stream_progress });
  let text = "";
  const events = [];
  for await (const chunk of stream) {
    // Most programs read chunks without checking their content.
    text += chunk.choices[0].delta.content ?? "";
    if (chunk.dagwright?.events) events.push(...chunk.dagwright.events.map((event) => event.type));
  }
  results.streams[stream_progress] = { text, events };
}

// The helpers of the client combine chunks, and check the chunks.
const helper = client.chat.completions.stream({ model: "plan/chain", messages, stream_progress: "full" });
results.helper = (await helper.finalChatCompletion()).choices[0].message.content;

const approval = (await client.chat.completions.create({ model: "plan/asking", messages })).choices[0];
const toolResults = approval.message.tool_calls.map((call) => ({ role: "tool", tool_call_id: call.id, content: "yes" }));
const done = await client.chat.completions.create({
  model: "plan/asking",
  messages: [...messages, approval.message, ...toolResults],
});
results.approval = [approval.finish_reason, approval.message.tool_calls[0].function.name, done.choices[0].message.content];

const approvalStream = client.chat.completions.stream({ model: "plan/asking", messages });
results.streamedApproval = (await approvalStream.finalChatCompletion()).choices[0].message.tool_calls[0].function.name;

const response = await client.responses.create({ model: "plan/chain", input: "{}", stream: true, stream_progress: "full" });
results.response = "";
for await (const event of response) if (event.type === "response.output_text.delta") results.response += event.delta;

// The helper raises an error for an unknown event type.
const responseStream = client.responses.stream({ model: "plan/chain", input: "{}", stream_progress: "full" });
results.responseEvents = [];
for await (const event of responseStream) {
  for (const each of event.dagwright?.events ?? []) results.responseEvents.push(each.type);
}
const finalResponse = await responseStream.finalResponse();
results.responseHelper = finalResponse.output_text;

// Stream the response again by its ID: all events, and then only the events after the first text.
const repeatedStream = client.responses.stream({ response_id: finalResponse.id });
results.streamedAgain = (await repeatedStream.finalResponse()).output_text;
const allEvents = [];
for await (const event of await client.responses.retrieve(finalResponse.id, { stream: true })) allEvents.push(event);
results.resumedStream = [];
const after = allEvents.findIndex((event) => event.type === "response.output_text.delta");
const rest = { stream: true, starting_after: allEvents[after].sequence_number };
for await (const event of await client.responses.retrieve(finalResponse.id, rest)) results.resumedStream.push(event.type);
results.resumedStream = [results.resumedStream.join() === allEvents.slice(after + 1).map((event) => event.type).join(), results.resumedStream.at(-1)];

const background = await client.responses.create({ model: "plan/chain", input: "{}", background: true });
let fetched = background;
while (fetched.status === "in_progress") fetched = await client.responses.retrieve(background.id);
results.fetched = fetched.output_text;

try {
  await client.chat.completions.create({ model: "plan/none", messages });
} catch (error) {
  results.error = [error instanceof NotFoundError, error.code];
}
console.log(JSON.stringify(results));
