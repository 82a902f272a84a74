/* Elements. Text of a trace only ever enters as textContent. */

function element(tag, options, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(options || {})) {
    if (name === "text") made.textContent = value;
    else if (name === "class") made.className = value;
    else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== null && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null));
  return made;
}
