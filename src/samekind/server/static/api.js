// Every word spoken to the server. Writes carry the header that a foreign page cannot send.

/** An answer that is not a success. Status 0: there was no answer at all. */
export class Problem extends Error {
  constructor(status, body) {
    super(body.detail || body.title || `The server answered with status ${status}.`);
    this.status = status;
    this.body = body;
  }
}

async function fetched(path, options) {
  let answer;
  try {
    answer = await fetch(path, { credentials: "same-origin", ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(0, { detail: "The server does not answer." });
  }
  if (answer.ok) return answer;
  const body = await answer.json().catch(() => ({}));
  throw new Problem(answer.status, body);
}

async function json(path, options) {
  const answer = await fetched(path, options);
  return answer.status === 204 ? null : answer.json();
}

const TYPES = { csv: "text/csv", jsonl: "application/x-ndjson", labelstudio: "application/json" };
const OURS = { "X-Samekind": "1" };
function send(method, path, body, signal) {
  const headers = { ...OURS, "Content-Type": "application/json" };
  return json(path, { method, headers, body: JSON.stringify(body), signal });
}

const query = (values) => {
  const given = Object.entries(values).filter(([, v]) => v !== null && v !== undefined && v !== "");
  return given.length ? `?${new URLSearchParams(given)}` : "";
};

/** A name for a write, so that sending it twice does it once. (randomUUID needs a secure page; this does not.) */
export const requestId = () =>
  [...crypto.getRandomValues(new Uint8Array(16))].map((b) => b.toString(16).padStart(2, "0")).join("");

async function numbers(path, Kind, signal) {
  const answer = await fetched(path, { signal });
  const values = new Kind(await answer.arrayBuffer());
  return { values, version: Number(answer.headers.get("X-Model-Version") || 0) };
}

export const api = {
  login: (token) => send("POST", "/api/login", { token }),
  run: () => json("/api/run"),
  order: (view, signal) => numbers(`/api/order${query(view)}`, Uint32Array, signal),
  items: (ids, signal) => send("POST", "/api/items", { ids }, signal),
  item: (id, signal) => json(`/api/items/${id}`, { signal }),
  similar: (body, signal) => send("POST", "/api/similar", body, signal),
  labels: (body) => send("POST", "/api/labels", body),
  undo: (body) => send("POST", "/api/undo", body),
  redo: (body) => send("POST", "/api/redo", body),
  events: (since) => json(`/api/events?since=${since}`),
  addClass: (body) => send("POST", "/api/classes", body),
  changeClass: (id, body) => send("PATCH", `/api/classes/${id}`, body),
  fit: (mode) => send("POST", "/api/fit", { mode }),
  job: () => json("/api/job"),
  cancel: (id) => send("POST", `/api/job/${id}/cancel`, {}),
  models: () => json("/api/models"),
  activate: (version) => send("POST", `/api/models/${version}/activate`, {}),
  map: () => numbers("/api/map", Float32Array),
  colors: () => numbers("/api/colors", Int16Array),
  audit: (body) => send("POST", "/api/audit", body),
  exportUrl: (values) => `/api/export${query(values)}`,
  thumb: (item, size) => `/img/${item.id}/thumb?size=${size}&key=${encodeURIComponent(item.image_key)}`,
  full: (item) => `/img/${item.id}/full?key=${encodeURIComponent(item.image_key)}`,
  bring: (file, values) => {
    const headers = { ...OURS, "Content-Type": TYPES[values.format] };
    return json(`/api/import${query(values)}`, { method: "POST", headers, body: file });
  },
};
