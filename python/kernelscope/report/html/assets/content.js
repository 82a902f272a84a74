/* The content that the page unpacks. */

function decoded64(content) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(content);
  const text = atob(content);
  const bytes = new Uint8Array(text.length);
  for (let index = 0; index < text.length; index += 1) bytes[index] = text.charCodeAt(index);
  return bytes;
}

async function unpack(name) {
  const block = document.getElementById(name);
  const bytes = decoded64(block.textContent);
  block.remove();
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream);
}

const unpacked = new Map();

/* The content of a block, unpacked when it is first asked for. */
function content(name, read) {
  if (!unpacked.has(name)) unpacked.set(name, unpack(name).then(read));
  return unpacked.get(name);
}

const viewOf = (id) => content(`view-${id}`, (response) => response.json());

async function asUrl(response) {
  return URL.createObjectURL(new Blob([await response.arrayBuffer()], { type: "text/javascript" }));
}

/* Plotly, which draws the figures. */
function plotly() {
  return content("library-plotly", async (response) => {
    const url = await asUrl(response);
    await new Promise((resolve, reject) => {
      document.head.append(element("script", { src: url, onload: resolve, onerror: reject }));
    });
    return window.Plotly;
  });
}

/* DataTables, which shows the tables. */
function dataTables() {
  return content("library-datatables", async (response) => {
    const style = await content("library-datatables-style", (css) => css.text());
    // In front of the page's own style, which adapts it.
    document.head.insertBefore(element("style", { text: style }), document.head.querySelector("style"));
    return (await import(await asUrl(response))).default;
  });
}

/* A title that leads to what it means. */
function termLink(key, title) {
  return element("a", { class: "term", href: `#glossary/${key}`, text: title });
}

/* What a part means and its columns, behind a button. */
function explanation({ what, columns }) {
  if (!what && !columns) return null;
  const inside = [element("summary", { text: "What does this mean?" }), element("p", { text: what })];
  if (columns) {
    const links = columns.flatMap((column, at) => [at ? ", " : "Columns: ", termLink(column.key, column.title)]);
    inside.push(element("p", {}, ...links));
  }
  return element("details", { class: "what" }, ...inside);
}

function heading(part, level) {
  if (!part.title) return null;
  return element("div", { class: "head" }, element(level || "h2", { text: part.title }), explanation(part));
}
