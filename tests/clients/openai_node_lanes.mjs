// Runs lanes of one WebSocket with OpenAI's Node SDK and prints what its user gets, as one line of JSON.
//
//   node openai_node_lanes.mjs FOLDER BASE_URL KEY PLAY
//
// FOLDER has the SDK and ws in its node_modules. PLAY is one of the functions below; all of them use ResponsesWS and
// the session that the SDK builds on it.
import { createRequire } from "node:module";
import { join } from "node:path";

const [folder, baseURL, apiKey, play] = process.argv.slice(2);
const require = createRequire(join(folder, "package.json"));
const { OpenAI } = require("openai");
const { ResponsesWS } = require("openai/resources/responses/ws");
const { ResponsesWebSocketSession } = require("openai/lib/responses/responses-websocket-session");

const NAMES = Array.from({ length: 8 }, (_, number) => `lane-${number}`);
const TOOL = {
  type: "function",
  name: "lookup_tide",
  parameters: {
    type: "object",
    properties: { place: { type: "string" } },
    required: ["place"],
    additionalProperties: false,
  },
  strict: true,
};
const asking = { model: "tides", tools: [TOOL], store: false };
const greeting = { model: "hello", input: "hi", store: false };

function answer(response, output) {
  const { call_id } = response.output.find((item) => item.type === "function_call");
  return { previous_response_id: response.id, input: [{ type: "function_call_output", call_id, output }] };
}

async function turn(lane, request) {
  lane.create(request);
  return await lane.finalResponse();
}

async function until(lane, type) {
  while ((await lane.receive()).type !== type);
}

async function toolLoops(session) {
  return await Promise.all(
    NAMES.map(async (name) => {
      const lane = session.lane(name);
      const answers = [];
      for (const round of [0, 1, 2]) {
        const first = await turn(lane, { ...asking, input: "When?" });
        const last = await turn(lane, { ...asking, ...answer(first, `${name}, ${round}`) });
        answers.push(last.output_text);
      }
      return answers;
    }),
  );
}

async function forks(session) {
  const source = session.lane();
  const parent = await turn(source, greeting);
  const following = { ...greeting, previous_response_id: parent.id };
  const lanes = NAMES.map((name) => session.lane(name));
  for (const lane of lanes) lane.create(following);
  await Promise.all(lanes.map((lane) => until(lane, "response.in_progress")));
  const last = await turn(source, following);
  const ends = await Promise.all(lanes.map((lane) => lane.finalResponse()));
  return [last, ...ends].map((response) => response.output_text);
}

async function warmUp(session) {
  const warm = await turn(session.lane("trunk"), { ...greeting, generate: false });
  const following = { model: "hello", store: false, previous_response_id: warm.id };
  const ends = await Promise.all(NAMES.slice(1).map((name) => turn(session.lane(name), following)));
  return ends.map((response) => response.output_text);
}

async function errors(session) {
  const [refused, failing, well] = NAMES.slice(0, 3).map((name) => session.lane(name));
  refused.create({ ...greeting, previous_response_id: "resp_unknown" });
  failing.create({ ...greeting, model: "breaks" });
  well.create(greeting);
  const raised = await refused.finalResponse().catch((error) => error);
  const failed = await failing.finalResponse();
  const texts = [(await well.finalResponse()).output_text];
  for (const lane of [refused, failing]) texts.push((await turn(lane, greeting)).output_text);
  return { code: raised.error?.error?.code ?? raised.error?.code ?? String(raised), status: failed.status, texts };
}

async function steering(session) {
  return await Promise.all(
    NAMES.map(async (name) => {
      const lane = session.lane(name);
      lane.create({ model: "thinks", input: "Which way?", store: false });
      const told = [];
      let ends = 0;
      let target = null;
      let isSteered = false;
      while (ends < 2) {
        const { type, response } = await lane.receive();
        target ??= response?.id;
        if (type === "response.output_item.done" && !isSteered) {
          isSteered = true;
          connection.send({ type: "response.steer", previous_response_id: target, input: `${name}: go left.` });
        }
        if (type === "response.incomplete" || type === "response.completed") ends += 1;
        if (type === "response.created" || type.includes("steer") || response?.status === "completed") told.push(type);
      }
      return told;
    }),
  );
}

const connection = new ResponsesWS(new OpenAI({ baseURL, apiKey, maxRetries: 0 }));
connection.on("error", () => {}); // request errors are the lanes' to tell
await new Promise((resolve) => connection.socket.once("open", resolve));
const session = new ResponsesWebSocketSession(connection, {
  maxLanes: NAMES.length + 1,
  maxBufferedEvents: 4096,
  maxBufferedBytes: 1 << 24,
});
const result = await { toolLoops, forks, warmUp, errors, steering }[play](session);
connection.close();
console.log(JSON.stringify({ result }));
