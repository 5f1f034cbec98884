// The card on the columns of a table: what the fit made of each.
import { api } from "./api.js";
import { $, count, el } from "./dom.js";
import { handleProblem, state } from "./state.js";

let drawnVersion;

/** Return the card, which is hidden until a model of a table is loaded. */
export const columnsCard = () => el("section", { id: "columns", class: "card of-model", "aria-label": "Columns", hidden: true });

/** Draw the card again if another model is in use. */
export function drawColumns() {
  const version = state.run.kind === "rows" ? state.run.model.version : undefined;
  if (!version || version === drawnVersion) return;
  drawnVersion = version;
  api.columns().then(({ columns }) => {
    const lines = columns.map(({ name, note, used }) =>
      el("li", { class: used ? "used" : "unused" }, el("b", {}, name), ` ${note}`));
    $("#columns").hidden = !columns.length;
    $("#columns").replaceChildren(el("details", {}, el("summary", {}, count(columns.length, "column")),
      el("ul", { class: "advice" }, ...lines)));
  }, handleProblem);
}
