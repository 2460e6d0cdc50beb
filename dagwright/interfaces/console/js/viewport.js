// The visible area of a large drawing. The user moves the area by dragging, and zooms with the wheel or two fingers.

const MIN_SCALE = 0.005;
const MAX_SCALE = 2.5;
const MAX_TAP_PX = 5; // a pointer that moves less between down and up is a tap

export class Viewport {
  #canvas;
  #onMove;
  #onTap;
  #pointers = new Map();
  #movedPx = 0;
  #pressedElement = null;
  scale = 1;
  x = 0;
  y = 0;

  constructor(canvas, { onMove, onTap }) {
    this.#canvas = canvas;
    this.#onMove = onMove;
    this.#onTap = onTap;
    canvas.addEventListener("pointerdown", (event) => this.#down(event));
    canvas.addEventListener("pointermove", (event) => this.#drag(event));
    for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, (event) => this.#up(event));
    canvas.addEventListener("wheel", (event) => this.#wheel(event), { passive: false });
    // Keyboards and screen readers click without a pointer.
    canvas.addEventListener("click", (event) => event.detail === 0 && onTap(event.target));
  }

  get transform() {
    return `translate(${this.x} ${this.y}) scale(${this.scale})`;
  }

  /** The visible part of the drawing. */
  get visibleArea() {
    const { clientWidth, clientHeight } = this.#canvas;
    const [left, top] = [-this.x / this.scale, -this.y / this.scale];
    return { left, top, right: left + clientWidth / this.scale, bottom: top + clientHeight / this.scale };
  }

  /** Show a whole drawing, at most at full size. If the scale would be below `minScale`, show only the start of the drawing. */
  fit(width, height, { minScale = MIN_SCALE } = {}) {
    const { clientWidth, clientHeight } = this.#canvas;
    this.scale = Math.max(minScale, MIN_SCALE, Math.min(1, (clientWidth - 24) / width, (clientHeight - 24) / height));
    this.x = Math.max(12, (clientWidth - width * this.scale) / 2);
    this.y = (clientHeight - height * this.scale) / 2;
    this.#onMove();
  }

  /** Zooms around a point of the canvas, by default its centre. */
  zoom(factor, pointX = this.#canvas.clientWidth / 2, pointY = this.#canvas.clientHeight / 2) {
    const scale = Math.max(MIN_SCALE, Math.min(MAX_SCALE, this.scale * factor));
    this.x = pointX - ((pointX - this.x) / this.scale) * scale;
    this.y = pointY - ((pointY - this.y) / this.scale) * scale;
    this.scale = scale;
    this.#onMove();
  }

  /** Moves a point of the drawing to the centre, and zooms in if the scale is less than `minScale`. */
  center(x, y, minScale) {
    this.scale = Math.max(this.scale, minScale);
    this.x = this.#canvas.clientWidth / 2 - x * this.scale;
    this.y = this.#canvas.clientHeight / 2 - y * this.scale;
    this.#onMove();
  }

  /** Moves a point of the drawing into view if it is not visible. */
  bringIntoView(x, y) {
    const { left, top, right, bottom } = this.visibleArea;
    const margin = 40 / this.scale;
    if (x < left + margin || x > right - margin || y < top + margin || y > bottom - margin) this.center(x, y, this.scale);
  }

  #down(event) {
    if (event.button !== 0) return;
    this.#pointers.set(event.pointerId, [event.offsetX, event.offsetY]);
    this.#movedPx = 0;
    this.#pressedElement = event.target;
    this.#canvas.setPointerCapture(event.pointerId);
    this.#canvas.classList.add("held");
  }

  #drag(event) {
    const previous = this.#pointers.get(event.pointerId);
    if (!previous) return;
    const current = [event.offsetX, event.offsetY];
    const otherPointers = [...this.#pointers].filter(([id]) => id !== event.pointerId);
    this.#pointers.set(event.pointerId, current);
    this.#movedPx += Math.hypot(current[0] - previous[0], current[1] - previous[1]);
    if (otherPointers.length) {
      const [, fixedPoint] = otherPointers[0];
      const distance = (point) => Math.max(20, Math.hypot(point[0] - fixedPoint[0], point[1] - fixedPoint[1]));
      this.zoom(distance(current) / distance(previous), (fixedPoint[0] + current[0]) / 2, (fixedPoint[1] + current[1]) / 2);
      return;
    }
    if (this.#movedPx < MAX_TAP_PX) return;
    this.x += current[0] - previous[0];
    this.y += current[1] - previous[1];
    this.#onMove();
  }

  #up(event) {
    if (!this.#pointers.delete(event.pointerId)) return;
    if (!this.#pointers.size) this.#canvas.classList.remove("held");
    if (event.type === "pointerup" && this.#movedPx < MAX_TAP_PX) this.#onTap(this.#pressedElement);
  }

  #wheel(event) {
    event.preventDefault();
    const factor = Math.exp(-event.deltaY * (event.deltaMode === 1 ? 0.05 : 0.0015));
    this.zoom(factor, event.offsetX, event.offsetY);
  }
}
