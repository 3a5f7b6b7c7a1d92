// Plays over HTTP with the helpers of OpenAI's Node SDK and prints what its user gets, as one line of JSON.
//
//   node openai_node_http.mjs FOLDER BASE_URL KEY PLAY
//
// FOLDER has the SDK and zod in its node_modules. PLAY is one of the functions below.
import { createRequire } from "node:module";
import { join } from "node:path";

const [folder, baseURL, apiKey, play] = process.argv.slice(2);
const require = createRequire(join(folder, "package.json"));
const { OpenAI } = require("openai");
const { zodTextFormat, zodResponsesFunction } = require("openai/helpers/zod");
const { z } = require("zod");

const client = new OpenAI({ baseURL, apiKey, maxRetries: 0, timeout: 20_000 });
const Place = z.object({ place: z.string() });
const Voyage = z.object({
  stops: z.array(Place),
  kind: z.enum(["sail", "motor"]),
  captain: z.string().nullable(),
  crew: z.number().int(),
});
const tools = [zodResponsesFunction({ name: "lookup_tide", parameters: Place })];

async function parse() {
  const format = zodTextFormat(Voyage, "voyage");
  const { output_parsed } = await client.responses.parse({ model: "rehearsed", input: "Plan.", text: { format } });
  return { parsed: Voyage.safeParse(output_parsed).success };
}

async function streamParsed() {
  const format = zodTextFormat(Voyage, "voyage");
  const stream = client.responses.stream({ model: "rehearsed", input: "Plan.", text: { format } });
  let text = "";
  for await (const event of stream) if (event.type === "response.output_text.delta") text += event.delta;
  const { output_parsed } = await stream.finalResponse();
  return { same: JSON.stringify(Voyage.parse(JSON.parse(text))) === JSON.stringify(output_parsed) };
}

async function parseArguments() {
  const { output } = await client.responses.parse({ model: "tides", input: "When?", tools });
  return output.find((item) => item.type === "function_call").parsed_arguments;
}

async function streamToolLoop() {
  const first = await client.responses.stream({ model: "tides", input: "When?", tools }).finalResponse();
  const { call_id } = first.output.find((item) => item.type === "function_call");
  const input = [{ type: "function_call_output", call_id, output: "12:04" }];
  const stream = client.responses.stream({ model: "tides", input, tools, previous_response_id: first.id });
  return { text: (await stream.finalResponse()).output_text };
}

console.log(JSON.stringify(await { parse, streamParsed, parseArguments, streamToolLoop }[play]()));
