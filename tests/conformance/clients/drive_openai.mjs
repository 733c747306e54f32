// openai for Node. Chat completions have a loop for tools, `runTools`; for the Responses API one is written by hand.
import OpenAI from "openai";
import { NEXT_QUESTION, Weather, serve } from "./lines.mjs";

const PARAMETERS = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const ABOUT = { name: "weather", description: "The weather of a city.", parameters: PARAMETERS };

const clientOf = (order) => new OpenAI({ baseURL: order.base_url, apiKey: "none", defaultHeaders: order.headers });
const said = (order) => [{ role: "user", content: order.question }];

function ofChat(completion, more = {}) {
  const { choices: [choice], usage, gateway } = completion;
  const tokens = usage && [usage.prompt_tokens, usage.completion_tokens];
  return {
    text: choice.message.content, finish: choice.finish_reason, usage: tokens, run_id: gateway?.run_id, ...more,
  };
}

function ofResponse(response, more = {}) {
  const { output_text: text, status: finish, usage, gateway, error } = response;
  const tokens = [usage.input_tokens, usage.output_tokens];
  return { text, finish, usage: tokens, run_id: gateway.run_id, words: error?.message ?? "", ...more };
}

async function ask(order) {
  const client = clientOf(order);
  if (order.api === "chat") {
    return ofChat(await client.chat.completions.create({ model: order.model, messages: said(order) }));
  }
  return ofResponse(await client.responses.create({ model: order.model, input: said(order) }));
}

async function again(order) {
  const client = clientOf(order);
  const next = { role: "user", content: NEXT_QUESTION };
  if (order.api === "chat") {
    const first = await client.chat.completions.create({ model: order.model, messages: said(order) });
    const messages = [...said(order), first.choices[0].message, next];
    return ofChat(await client.chat.completions.create({ model: order.model, messages }));
  }
  const first = await client.responses.create({ model: order.model, input: said(order) });
  const input = [...said(order), ...first.output, next];
  return ofResponse(await client.responses.create({ model: order.model, input }));
}

async function stream(order) {
  const client = clientOf(order);
  const deltas = [];
  if (order.api === "chat") {
    const body = { model: order.model, messages: said(order), stream_options: { include_usage: true } };
    const runner = client.chat.completions.stream(body);
    runner.on("content", (delta) => deltas.push(delta));
    return ofChat(await runner.finalChatCompletion(), { deltas });
  }
  const events = client.responses.stream({ model: order.model, input: said(order) });
  events.on("response.output_text.delta", (event) => deltas.push(event.delta));
  return ofResponse(await events.finalResponse(), { deltas });
}

async function tool(order) {
  const weather = new Weather();
  return (order.api === "chat" ? chatLoop : responsesLoop)(clientOf(order), order, weather);
}

async function chatLoop(client, order, weather) {
  const tools = [{
    type: "function",
    function: { ...ABOUT, parse: JSON.parse, function: ({ city }) => weather.of(city) },
  }];
  const streamed = order.stream ? { stream: true, stream_options: { include_usage: true } } : {};
  const runner = client.chat.completions.runTools({
    model: order.model, messages: said(order), tools, ...streamed,
  });
  return ofChat(await runner.finalChatCompletion(), { executed: weather.asked });
}

async function responsesLoop(client, order, weather) {
  const input = said(order);
  const tools = [{ type: "function", ...ABOUT, strict: false }];
  for (;;) {
    const body = { model: order.model, input, tools };
    const response = order.stream
      ? await client.responses.stream(body).finalResponse()
      : await client.responses.create(body);
    const calls = response.output.filter((item) => item.type === "function_call");
    if (calls.length === 0) return ofResponse(response, { executed: weather.asked });
    input.push(...response.output);
    for (const call of calls) {
      const output = weather.of(JSON.parse(call.arguments).city);
      input.push({ type: "function_call_output", call_id: call.call_id, output });
    }
  }
}

async function leave(order) {
  const client = clientOf(order);
  const chat = order.api === "chat";
  const events = chat
    ? await client.chat.completions.create({ model: order.model, messages: said(order), stream: true })
    : await client.responses.create({ model: order.model, input: said(order), stream: true });
  for await (const event of events) {
    const text = chat ? event.choices[0]?.delta.content : event.delta;
    if (!text) continue;
    events.controller.abort();
    return { text };
  }
  throw new Error("no text came");
}

await serve({ ask, again, stream, tool, leave });
