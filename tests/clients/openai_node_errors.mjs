// Streams one response with OpenAI's Node SDK and prints what its user gets, as one line of JSON.
//
//   node openai_node_errors.mjs FOLDER BASE_URL KEY MODEL create|stream
//
// FOLDER has the SDK in its node_modules. "create" iterates over the events of responses.create({stream: true}),
// "stream" over those of the helper responses.stream(...).
import { createRequire } from "node:module";
import { join } from "node:path";

const [folder, baseURL, apiKey, model, way] = process.argv.slice(2);
const { OpenAI, APIError } = createRequire(join(folder, "package.json"))("openai");
const client = new OpenAI({ baseURL, apiKey, maxRetries: 0, timeout: 10_000 });

const types = [];
const deltas = [];
let raised = null;
try {
  const request = { model, input: "hi" };
  const events =
    way === "create" ? await client.responses.create({ ...request, stream: true }) : client.responses.stream(request);
  for await (const event of events) {
    types.push(event.type);
    if (event.type === "response.output_text.delta") deltas.push(event.delta);
  }
} catch (error) {
  const { status, type, code, param, message } = error;
  raised = { is_api_error: error instanceof APIError, status, type, code, param, message };
}
console.log(JSON.stringify({ types, deltas, raised }));
