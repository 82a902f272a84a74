/* Tables: DataTables sorts, searches, filters, copies and saves; rows open to show everything of theirs. */

const MOST_TEXT = 300;
const shownTables = new Map();

const isText = (column) => column.unit === "text" || column.unit === "sentence";
const classOf = (column) => (isText(column) ? column.unit : "number");

function columnOptions(table) {
  return table.columns.map((column, index) => ({
    title: column.title,
    type: isText(column) || column.unit === "flag" ? "string" : "num",
    className: index === 0 && column.unit !== "sentence" ? "text" : classOf(column),
    data: (row, type) => cellData(table, column, index, row, type),
    columnControl: table.rows > 5 ? [[{ extend: "search", placeholder: placeholderOf(column) }]] : [],
    createdCell: (cell, _data, row, _rowIndex, columnIndex) => fillCell(table, cell, row, columnIndex),
  }));
}

function meaningOf(column) {
  return isText(column) || column.unit === "flag" ? column.what : `${column.what} Unit: ${column.unit}.`;
}

/* Numbers are filtered in the unit in which they are kept. */
function placeholderOf(column) {
  return { ns: "in ns", bytes: "in bytes", share: "0 to 1", percent: "in %" }[column.unit] || column.title;
}

/* DataTables takes what it shows and searches for markup, so that text has to reach it escaped. */
function escaped(text) {
  return String(text).replace(/[&<>"]/g, (sign) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[sign]);
}

function cellData(table, column, index, row, type) {
  const value = cellOf(table, index, row[0]);
  if (type === "sort" || type === "type") return value === null ? (isText(column) ? "" : -Infinity) : value;
  if (type === "export") return value === null ? "" : value;
  if (type === "filter" && !isText(column) && column.unit !== "flag") return value === null ? "" : value;
  if (type === "filter") return escaped(show(value, column.unit));
  return escaped(show(value, column.unit).slice(0, MOST_TEXT));
}

function fillCell(table, cell, row, index) {
  const column = table.columns[index];
  const value = cellOf(table, index, row[0]);
  let text = shortOf(table, index, row[0]) || show(value, column.unit);
  if (text.length > MOST_TEXT && column.unit !== "sentence") text = `${text.slice(0, MOST_TEXT)} …`;
  const inside = element("span", { class: "cell", text, dir: isText(column) ? "auto" : null });
  if (isText(column)) inside.title = show(value, "text").slice(0, MOST_TEXT);
  cell.textContent = "";
  if (index === 0) {
    const button = element("button", { type: "button", class: "open", "aria-expanded": "false" }, inside);
    button.addEventListener("click", () => toggleRow(table.id, row[0]));
    cell.append(button);
  } else cell.append(inside);
}

/* A table as the page draws it; its wrapper is given at once, DataTables fills it when it is there. */
function tableElement(view, table) {
  const heads = table.columns.map((column) => element("th", { scope: "col", title: meaningOf(column), text: column.title }));
  const place = element("table", { class: "display compact", "aria-label": table.title }, element("thead", {}, element("tr", {}, ...heads)));
  const holder = element("div", { class: "table-holder", role: "region", "aria-label": table.title, tabindex: "0" }, place);
  const section = element("section", { class: "part table", id: `part-${table.id}` }, heading(table), holder);
  if (table.all > table.rows) {
    const text = `The first ${show(table.rows, "count")} of ${show(table.all, "count")} rows; --format csv or parquet has all.`;
    section.append(element("p", { class: "note", text }));
  }
  if (!table.rows) {
    holder.replaceChildren(element("p", { class: "note", text: "The trace contains nothing of this kind." }));
    return section;
  }
  section.draw = async () => {
    const DataTable = await dataTables();
    // The reader may have left meanwhile.
    if (place.isConnected) drawTable(DataTable, view, table, place);
  };
  return section;
}

function drawTable(DataTable, view, table, place) {
  const rows = Array.from({ length: table.rows }, (_, index) => [index]);
  const file = `kernelscope-${view.id}-${table.id}`;
  const saved = { exportOptions: { orthogonal: "export", format: { header: (_text, index) => table.columns[index].key } } };
  const api = new DataTable(place, {
    data: rows,
    columns: columnOptions(table),
    order: [],
    autoWidth: false,
    deferRender: true,
    pageLength: 25,
    lengthMenu: [10, 25, 50, 100, 500],
    paging: table.rows > 25,
    info: table.rows > 10,
    searching: true,
    layout: {
      topStart: {
        buttons: [
          { extend: "copy", title: null, ...saved },
          { extend: "csv", title: null, filename: file, escapeExcelFormula: true, ...saved },
        ],
      },
      topEnd: table.rows > 5 ? { search: { placeholder: "Search" } } : null,
      bottomStart: table.rows > 10 ? "info" : null,
      bottomEnd: table.rows > 25 ? ["pageLength", "paging"] : null,
    },
    language: { search: "", searchPlaceholder: "Search this table", info: "_START_ to _END_ of _TOTAL_" },
  });
  // Landmarks of one page have different names.
  api.table().container().querySelector("nav")?.setAttribute("aria-label", `Pages of ${table.title}`);
  shownTables.set(table.id, { api, view, table });
}

/* Opens a row, or closes it, and keeps the address in step. */
function toggleRow(id, index, wanted) {
  const entry = shownTables.get(id);
  if (!entry) return;
  const row = entry.api.row((position) => position === index);
  const open = wanted === undefined ? !row.child.isShown() : wanted;
  if (open === row.child.isShown()) return;
  if (open) row.child(rowDetails(entry, index), "details").show();
  else row.child.hide();
  const node = row.node();
  const button = node && node.querySelector("button.open");
  if (button) button.setAttribute("aria-expanded", String(open));
  history.replaceState(null, "", open ? `#${entry.view.id}/${id}/${index}` : `#${entry.view.id}`);
}

/* Everything that is known of a row, and the rows of other tables that belong to it. */
function rowDetails({ view, table }, index) {
  const list = element("dl");
  table.columns.forEach((column, position) => {
    const value = cellOf(table, position, index);
    if (value === null) return;
    list.append(element("dt", { title: column.what }, termLink(column.key, column.title)));
    list.append(element("dd", { text: show(value, column.unit), dir: "auto" }));
  });
  const box = element("div", { class: "row-details" }, list);
  for (const [title, other, theirs, ours] of table.opens) {
    const target = view.tables.get(other);
    if (target) box.append(relatedRows(title, target, theirs, valueOf(table, ours, index)));
  }
  return box;
}

function valueOf(table, key, row) {
  const position = table.columns.findIndex((column) => column.key === key);
  return position < 0 ? null : cellOf(table, position, row);
}

const MOST_RELATED = 50;

function relatedRows(title, target, key, wanted) {
  const position = target.columns.findIndex((column) => column.key === key);
  const found = [];
  for (let row = 0; row < target.rows && position >= 0; row += 1) {
    if (cellOf(target, position, row) === wanted) found.push(row);
  }
  const box = element("div", { class: "related" }, element("h3", { text: `${title}: ${found.length}` }));
  if (!found.length) return box;
  const columns = target.columns.map((column, at) => [column, at]).filter(([, at]) => at !== position);
  const head = element("tr", {}, ...columns.map(([column]) => element("th", { text: column.title, title: column.what, scope: "col" })));
  const body = found.slice(0, MOST_RELATED).map((row) =>
    element("tr", {}, ...columns.map(([column, at]) => {
      const text = shortOf(target, at, row) || show(cellOf(target, at, row), column.unit);
      return element("td", { class: classOf(column) }, element("span", { class: "cell", text: text.slice(0, MOST_TEXT), title: text.slice(0, MOST_TEXT) }));
    })),
  );
  box.append(element("div", { class: "table-holder" }, element("table", {}, element("thead", {}, head), element("tbody", {}, ...body))));
  if (found.length > MOST_RELATED) box.append(element("p", { class: "note", text: `and ${found.length - MOST_RELATED} more` }));
  return box;
}

/* Shows the page of the table on which a row stands, opens the row and goes there. */
function goToRow(id, index) {
  const entry = shownTables.get(id);
  if (!entry || !(index >= 0 && index < entry.table.rows)) return;
  const order = entry.api.rows({ order: "applied", search: "applied" }).indexes().toArray();
  const place = order.indexOf(index);
  const size = entry.api.page.len();
  if (place >= 0 && size > 0) entry.api.page(Math.floor(place / size)).draw("page");
  toggleRow(id, index, true);
  const node = entry.api.row((position) => position === index).node();
  if (node) {
    node.scrollIntoView({ block: "center" });
    const button = node.querySelector("button.open");
    if (button) button.focus({ preventScroll: true });
  }
}
