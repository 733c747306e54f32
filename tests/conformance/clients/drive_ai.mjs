// The `ai` package with its own provider for OpenAI: generateText and streamText have the loop for tools.
import { createOpenAI } from "@ai-sdk/openai";
import { generateText, isStepCount, streamText, tool as declared } from "ai";
import { z } from "zod";
import { NEXT_QUESTION, Weather, serve } from "./lines.mjs";

// It asks again after two seconds, and by default after four more.
function common(order) {
  const provider = createOpenAI({ baseURL: order.base_url, apiKey: "none", headers: order.headers });
  return { model: provider[order.api](order.model), prompt: order.question, maxRetries: 1 };
}

// What it calls usage is that of the last step.
async function told(result, more = {}) {
  const [text, finish, usage, response] = await Promise.all([
    result.text, result.finishReason, result.usage, result.response,
  ]);
  return {
    text, finish, usage: [usage.inputTokens, usage.outputTokens], run_id: response.headers["x-run-id"], ...more,
  };
}

async function ask(order) {
  return told(await generateText(common(order)));
}

async function again(order) {
  const { model } = common(order);
  const messages = [{ role: "user", content: order.question }];
  const first = await generateText({ model, messages });
  messages.push(...first.response.messages, { role: "user", content: NEXT_QUESTION });
  return told(await generateText({ model, messages }));
}

async function stream(order) {
  let failure;
  const result = streamText({ ...common(order), onError: ({ error }) => (failure = error) });
  const deltas = [];
  for await (const delta of result.textStream) deltas.push(delta);
  if (failure) throw failure;
  return told(result, { deltas });
}

async function tool(order) {
  const seen = new Weather();
  const weather = declared({
    description: "The weather of a city.",
    inputSchema: z.object({ city: z.string() }),
    execute: async ({ city }) => seen.of(city),
  });
  const settings = { ...common(order), tools: { weather }, stopWhen: isStepCount(10) };
  const result = order.stream ? streamText(settings) : await generateText(settings);
  return told(result, { executed: seen.asked });
}

async function leave(order) {
  const controller = new AbortController();
  const result = streamText({ ...common(order), abortSignal: controller.signal });
  for await (const text of result.textStream) {
    controller.abort();
    return { text };
  }
  throw new Error("no text came");
}

await serve({ ask, again, stream, tool, leave });
