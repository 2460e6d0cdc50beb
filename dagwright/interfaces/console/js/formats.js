// Formats of strings in a JSON Schema: their descriptions, and conversion of dates and times.

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

/** Formats with their own browser field, which shows the accepted values. */
const TYPES = new Map([["date", "date"], ["date-time", "datetime-local"], ["email", "email"], ["uri", "url"]]);

/** The description of a format; empty if its field shows it. */
export function formatText(format) {
  if (format === "date-time") return `in your time zone, ${Intl.DateTimeFormat().resolvedOptions().timeZone}`;
  return WORDS.get(format) ?? (TYPES.has(format) ? "" : format);
}

/**
 * The `input` for a string of a format: its `type`, `write(text)` to fill it, and `read(text)` to read it.
 * A date and time that cannot be parsed is written as text.
 */
export function inputOf(format, given) {
  const plain = { write: (text) => text, read: (text) => text };
  if (format !== "date-time") return { type: TYPES.get(format) ?? "text", ...plain };
  if (given && Number.isNaN(Date.parse(given))) return { type: "text", ...plain };
  return { type: "datetime-local", write: localOf, read: (text) => (given && text === localOf(given) ? given : zonedOf(text)) };
}

const two = (number) => String(number).padStart(2, "0");

// Converts an RFC 3339 time to local time.
function localOf(text) {
  if (!text) return "";
  const at = new Date(text);
  const date = [String(at.getFullYear()).padStart(4, "0"), two(at.getMonth() + 1), two(at.getDate())].join("-");
  const seconds = at.getSeconds() ? `:${two(at.getSeconds())}` : "";
  return `${date}T${two(at.getHours())}:${two(at.getMinutes())}${seconds}`;
}

// Converts a local time to RFC 3339.
function zonedOf(local) {
  const ahead = -new Date(local).getTimezoneOffset();
  const whole = local.split(":").length > 2 ? local : `${local}:00`;
  const [hours, minutes] = [Math.floor(Math.abs(ahead) / 60), Math.abs(ahead) % 60];
  return `${whole}${ahead < 0 ? "-" : "+"}${two(hours)}:${two(minutes)}`;
}
