// Formats of texts in a JSON Schema: what they are in words, and dates and times as a person writes them.

const WORDS = new Map([
  ["email", "an address such as ann@example.com"],
  ["uri", "an address such as https://example.com/page"],
  ["time", "a time with its zone, such as 09:30:00Z"],
  ["duration", "a duration, such as P3D for three days or PT2H30M"],
  ["uuid", "such as 123e4567-e89b-42d3-a456-426614174000"],
  ["ipv4", "such as 192.0.2.10"],
  ["ipv6", "such as 2001:db8::10"],
  ["hostname", "a name such as www.example.com"],
]);

/** Formats that have a field of their own in the browser, which says itself what it takes. */
const TYPES = new Map([["date", "date"], ["date-time", "datetime-local"], ["email", "email"], ["uri", "url"]]);

/** What a format asks for, in words; empty if its field says so itself. */
export function formatWords(format) {
  if (format === "date-time") return `in your time zone, ${Intl.DateTimeFormat().resolvedOptions().timeZone}`;
  return WORDS.get(format) ?? (TYPES.has(format) ? "" : format);
}

/**
 * The kind of `input` for a text of a format, as its `type`, with `write(text)` for what stands in it and `read(text)`
 * for the text that is meant. A date and time that cannot be read is written as text.
 */
export function inputOf(format, given) {
  const plain = { write: (text) => text, read: (text) => text };
  if (format !== "date-time") return { type: TYPES.get(format) ?? "text", ...plain };
  if (given && Number.isNaN(Date.parse(given))) return { type: "text", ...plain };
  return { type: "datetime-local", write: localOf, read: (text) => (given && text === localOf(given) ? given : zonedOf(text)) };
}

const two = (number) => String(number).padStart(2, "0");

// A time of RFC 3339 as the clock here shows it.
function localOf(text) {
  if (!text) return "";
  const at = new Date(text);
  const date = [String(at.getFullYear()).padStart(4, "0"), two(at.getMonth() + 1), two(at.getDate())].join("-");
  const seconds = at.getSeconds() ? `:${two(at.getSeconds())}` : "";
  return `${date}T${two(at.getHours())}:${two(at.getMinutes())}${seconds}`;
}

// What the clock here shows as a time of RFC 3339.
function zonedOf(local) {
  const ahead = -new Date(local).getTimezoneOffset();
  const whole = local.split(":").length > 2 ? local : `${local}:00`;
  const [hours, minutes] = [Math.floor(Math.abs(ahead) / 60), Math.abs(ahead) % 60];
  return `${whole}${ahead < 0 ? "-" : "+"}${two(hours)}:${two(minutes)}`;
}
