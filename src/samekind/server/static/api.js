// Requests to the server. Writes carry a header that a page of another site cannot send.

/** A response that is not a success. Status 0: the server did not respond. */
export class ApiError extends Error {
  constructor(status, body) {
    super(body.detail || body.title || `The server responded with status ${status}.`);
    this.status = status;
    this.body = body;
  }
}

// The server gives a secret path at login, and takes the cookie only under that path: browsers send a cookie to every port of a
// machine, but only this origin knows the path. It is stored for other tabs and for a reload.
const STORED = "samekind.path";
let base = "";
try { base = localStorage.getItem(STORED) || ""; } catch { /* storage is blocked: the login ends with a reload */ }
function enterAt(path) {
  base = path;
  try { localStorage.setItem(STORED, path); } catch { /* as above */ }
}

async function fetchChecked(path, options) {
  let response;
  try {
    response = await fetch(base + path, { credentials: "same-origin", ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, { detail: "The server does not respond." });
  }
  if (response.ok) return response;
  const body = await response.json().catch(() => ({}));
  throw new ApiError(response.status, body);
}

async function fetchJson(path, options) {
  const response = await fetchChecked(path, options);
  return response.status === 204 ? null : response.json();
}

const TYPES = { csv: "text/csv", jsonl: "application/x-ndjson", labelstudio: "application/json" };
const WRITE_HEADERS = { "X-Samekind": "1" };
function send(method, path, body, signal) {
  const headers = { ...WRITE_HEADERS, "Content-Type": "application/json" };
  return fetchJson(path, { method, headers, body: JSON.stringify(body), signal });
}

const query = (values) => {
  const given = Object.entries(values).filter(([, v]) => v !== null && v !== undefined && v !== "");
  return given.length ? `?${new URLSearchParams(given)}` : "";
};

/** Return an id for a write: the server does a write once, however often it is sent. (randomUUID needs HTTPS.) */
export const requestId = () =>
  [...crypto.getRandomValues(new Uint8Array(16))].map((b) => b.toString(16).padStart(2, "0")).join("");

async function fetchArray(path, ArrayType, signal) {
  const response = await fetchChecked(path, { signal });
  const values = new ArrayType(await response.arrayBuffer());
  const [version, revision] = ["Version", "Revision"].map((name) => Number(response.headers.get(`X-Model-${name}`) || 0));
  return { values, version, revision };
}

export const api = {
  login: async (token) => {
    const options = { method: "POST", headers: { ...WRITE_HEADERS, "Content-Type": "application/json" } };
    const response = await fetchChecked("/api/login", { ...options, body: JSON.stringify({ token }) });
    enterAt(response.headers.get("Location"));
  },
  run: () => fetchJson("/api/run"),
  columns: () => fetchJson("/api/columns"),
  order: (view, signal) => fetchArray(`/api/order${query(view)}`, Uint32Array, signal),
  items: (ids, signal) => send("POST", "/api/items", { ids }, signal),
  item: (id, signal) => fetchJson(`/api/items/${id}`, { signal }),
  words: (id, signal) => fetchJson(`/api/items/${id}/words`, { signal }),
  similar: (body, signal) => send("POST", "/api/similar", body, signal),
  labels: (body) => send("POST", "/api/labels", body),
  undo: (body) => send("POST", "/api/undo", body),
  redo: (body) => send("POST", "/api/redo", body),
  events: (since) => fetchJson(`/api/events?since=${since}`),
  addClass: (body) => send("POST", "/api/classes", body),
  changeClass: (id, body) => send("PATCH", `/api/classes/${id}`, body),
  deleteClass: (id, body) => send("POST", `/api/classes/${id}/delete`, body),
  fit: (mode) => send("POST", "/api/fit", { mode }),
  job: () => fetchJson("/api/job"),
  cancel: (id) => send("POST", `/api/job/${id}/cancel`, {}),
  models: () => fetchJson("/api/models"),
  activate: (version) => send("POST", `/api/models/${version}/activate`, {}),
  map: () => fetchArray("/api/map", Float32Array),
  colors: () => fetchArray("/api/colors", Int16Array),
  instant: (body) => send("POST", "/api/instant", body),
  audit: (body) => send("POST", "/api/audit", body),
  exportUrl: (values) => `${base}/api/export${query(values)}`,
  thumb: (item, size) => `${base}/img/${item.id}/thumb?size=${size}&key=${encodeURIComponent(item.image_key)}`,
  full: (item) => `${base}/img/${item.id}/full?key=${encodeURIComponent(item.image_key)}`,
  importFile: (file, values) => {
    const headers = { ...WRITE_HEADERS, "Content-Type": TYPES[values.format] };
    return fetchJson(`/api/import${query(values)}`, { method: "POST", headers, body: file });
  },
};
