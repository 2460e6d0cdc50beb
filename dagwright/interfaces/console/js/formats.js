// Formats of strings in a JSON Schema: their descriptions, and conversion of dates and times.

const DESCRIPTIONS = new Map([
  ["email", "an address such as ann@example.com"],
  ["uri", "an address such as https://example.com/page"],
  ["time", "a time with its zone, such as 09:30:00Z"],
  ["duration", "a duration, such as P3D for three days or PT2H30M"],
  ["uuid", "such as 123e4567-e89b-42d3-a456-426614174000"],
  ["ipv4", "such as 192.0.2.10"],
  ["ipv6", "such as 2001:db8::10"],
  ["hostname", "a name such as www.example.com"],
]);

/** Format -> type of the browser's input field for it. */
const INPUT_TYPES = new Map([["date", "date"], ["date-time", "datetime-local"], ["email", "email"], ["uri", "url"]]);

/** The description of a format; empty if the input field itself shows the accepted values. */
export function formatText(format) {
  if (format === "date-time") return `in your time zone, ${Intl.DateTimeFormat().resolvedOptions().timeZone}`;
  return DESCRIPTIONS.get(format) ?? (INPUT_TYPES.has(format) ? "" : format);
}

/**
 * Describes the `input` element for a string of a format.
 *
 * Returns the `type` of the element; `write(text)`, which converts the string to the value of the element; and
 * `read(text)`, which converts the value back. A date and time that cannot be parsed is edited as text.
 */
export function inputOf(format, initialText) {
  const identity = { write: (text) => text, read: (text) => text };
  if (format !== "date-time") return { type: INPUT_TYPES.get(format) ?? "text", ...identity };
  if (initialText && Number.isNaN(Date.parse(initialText))) return { type: "text", ...identity };
  const read = (text) => (initialText && text === toLocal(initialText) ? initialText : toRfc3339(text));
  return { type: "datetime-local", write: toLocal, read };
}

const twoDigits = (number) => String(number).padStart(2, "0");

// Converts an RFC 3339 time to local time.
function toLocal(text) {
  if (!text) return "";
  const at = new Date(text);
  const date = [String(at.getFullYear()).padStart(4, "0"), twoDigits(at.getMonth() + 1), twoDigits(at.getDate())].join("-");
  const seconds = at.getSeconds() ? `:${twoDigits(at.getSeconds())}` : "";
  return `${date}T${twoDigits(at.getHours())}:${twoDigits(at.getMinutes())}${seconds}`;
}

// Converts a local time to RFC 3339.
function toRfc3339(localText) {
  const offsetMinutes = -new Date(localText).getTimezoneOffset();
  const textWithSeconds = localText.split(":").length > 2 ? localText : `${localText}:00`;
  const [hours, minutes] = [Math.floor(Math.abs(offsetMinutes) / 60), Math.abs(offsetMinutes) % 60];
  return `${textWithSeconds}${offsetMinutes < 0 ? "-" : "+"}${twoDigits(hours)}:${twoDigits(minutes)}`;
}
