/* Canvases: how large they are, and when they are drawn anew. */

/**
 * A canvas in the size in which it is shown, ready to be drawn on.
 * @param {HTMLCanvasElement} canvas
 * @param {number} width
 * @param {number} height
 */
export function prepared(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  const [wide, high] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== wide || canvas.height !== high) {
    canvas.width = wide;
    canvas.height = high;
    canvas.style.height = `${height}px`;
  }
  const paint = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  paint.setTransform(ratio, 0, 0, ratio, 0, 0);
  paint.clearRect(0, 0, width, height);
  paint.font = "11px system-ui, sans-serif";
  paint.textBaseline = "middle";
  return paint;
}

/**
 * Draws what is on the page once in the next frame, however often that is asked for; it is busy until then.
 * @param {{ pending: number, root: HTMLElement, drawNow: () => void }} drawing
 */
export function drawSoon(drawing) {
  if (drawing.pending) return;
  drawing.root.setAttribute("aria-busy", "true");
  drawing.pending = requestAnimationFrame(() => {
    drawing.pending = 0;
    if (drawing.root.isConnected) drawing.drawNow();
  });
}
