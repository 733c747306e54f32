// How a client is driven: orders and answers as JSON lines. See lines.py.
import { createInterface } from "node:readline";

export const NEXT_QUESTION = "And now?";
const WEATHER = { Oslo: "sun", Bergen: "rain", Rome: "wind" };

// The client's own tool, and what it was asked.
export class Weather {
  asked = [];

  of(city) {
    this.asked.push(city);
    return WEATHER[city];
  }
}

export async function serve(verbs) {
  for await (const line of createInterface({ input: process.stdin })) {
    console.log(JSON.stringify(await answer(verbs, JSON.parse(line))));
  }
}

async function answer(verbs, order) {
  try {
    return await verbs[order.verb](order);
  } catch (error) {
    return { raised: error.name, words: String(error.message ?? error) };
  }
}
