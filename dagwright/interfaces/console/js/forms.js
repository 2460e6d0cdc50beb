// A typed form for a JSON Schema: fields for simple types, JSON text for everything else.
//
// Problems are shown at their field. Problems that only the gateway can find are reported when the form is sent.

import { el } from "./dom.js";
import { formatText, inputOf } from "./formats.js";

const LONG_TEXT_CHARACTERS = 120;
const MAX_RADIO_CHOICES = 6;
let fieldCount = 0;

/**
 * A form for a value of a schema.
 *
 * value: the initial value, instead of defaults. label: name of the whole value.
 * emptyNote: note at required fields that may stay empty, because the run asks for the values later. Without this note,
 *     required fields must be filled in.
 *
 * Returns the element; `read()`, which shows problems and returns {value, problems: [{path, message}]}; `peek()`, which
 * returns the value without showing problems; and `focus()`.
 */
export function schemaForm(schema, { value, label, emptyNote } = {}) {
  const field = makeField(schema ?? {}, { root: schema ?? {}, label: label ?? "", path: [], value, emptyNote, required: true });
  const element = el("div", { class: "form" }, field.element);
  return {
    element,
    read() {
      const problems = [];
      field.clearProblems();
      const fieldValue = field.read(problems);
      problems[0]?.field.focus();
      return { value: fieldValue, problems: problems.map(({ path, message }) => ({ path, message })) };
    },
    peek() {
      const fieldValue = field.read([]);
      field.clearProblems();
      return fieldValue;
    },
    focus: () => field.focus(),
  };
}

// The field for a schema. spec: {root, path, value, label, required, emptyNote}; `path` is the path of the field in the value.
function makeField(rawSchema, spec) {
  const schema = resolveReference(rawSchema, spec.root);
  const types = [schema.type].flat().filter((type) => type && type !== "null");
  const initialValue = spec.value === undefined ? schema.default : spec.value;
  const field = { ...spec, value: initialValue, label: spec.label || schema.title || "", schema };
  if (isStoreReference(initialValue)) return storeReferenceField(field);
  if ("const" in schema) return choiceField({ ...field, choices: [schema.const] });
  if (Array.isArray(schema.enum)) return choiceField({ ...field, choices: schema.enum });
  if (schema.anyOf || schema.oneOf || schema.allOf || schema.not || types.length !== 1) return jsonField(field);
  switch (types[0]) {
    case "object":
      return hasProperties(schema) ? objectField(field) : jsonField(field);
    case "array":
      return arrayField(field);
    case "boolean":
      return choiceField({ ...field, choices: [true, false], labels: { true: "yes", false: "no" } });
    case "integer":
    case "number":
      return textField({ ...field, parse: numberParser(types[0], schema), mode: "decimal" });
    default:
      return textField({ ...field, parse: (text) => checkText(text, schema) });
  }
}

function resolveReference(schema, root, depth = 0) {
  if (schema === true || typeof schema !== "object" || schema === null) return {};
  if (typeof schema.$ref !== "string" || depth > 20) return schema;
  let target = root;
  for (const part of schema.$ref.replace(/^#\/?/, "").split("/").filter(Boolean)) {
    target = target?.[decodeURIComponent(part).replaceAll("~1", "/").replaceAll("~0", "~")];
  }
  const { $ref: _, ...keywords } = schema;
  return { ...resolveReference(target ?? {}, root, depth + 1), ...keywords };
}

// Whether a value is a reference to the payload store. Documents contain references instead of values over 8 KiB.
function isStoreReference(value) {
  return typeof value === "object" && value !== null && "ref" in value && "preview" in value && "bytes" in value;
}

function hasProperties(schema) {
  return Object.keys(schema.properties ?? {}).length > 0;
}

function newId() {
  fieldCount += 1;
  return `field-${fieldCount}`;
}

function addLabel(spec, control, { group = false } = {}) {
  const { schema, label, path } = spec;
  const error = el("p", { class: "problem", id: `${control.id}-error`, role: "alert", hidden: true });
  const hintText = [schema.description, schemaHint(schema)].filter(Boolean).join(" · ");
  const hint = hintText ? el("p", { class: "hint", id: `${control.id}-hint` }, hintText) : null;
  const name = label || path.at(-1) || "";
  const nameParts = name ? [name, optionalMark(spec)] : [];
  control.setAttribute("aria-describedby", [hint && hint.id, error.id].filter(Boolean).join(" "));
  if (control.getAttribute("role") === "radiogroup") control.setAttribute("aria-labelledby", `${control.id}-name`);
  const nameElement = group ? el("legend", { id: `${control.id}-name` }, ...nameParts) : el("label", { for: control.id }, ...nameParts);
  if (!name && !group) control.setAttribute("aria-label", "Value");
  const element = group
    ? el("fieldset", { class: "field" }, nameElement, hint, control, error)
    : el("div", { class: "field" }, name ? nameElement : null, hint, control, error);
  return {
    element,
    showError(message) {
      error.textContent = message;
      error.hidden = false;
      control.setAttribute("aria-invalid", "true");
    },
    clearProblem() {
      error.hidden = true;
      error.textContent = "";
      control.removeAttribute("aria-invalid");
    },
  };
}

function optionalMark({ required, emptyNote }) {
  if (required) return null;
  return el("span", { class: "hint" }, ` (${emptyNote ?? "optional"})`);
}

function schemaHint(schema) {
  const hints = [];
  if (schema.examples?.length) hints.push(`such as ${schema.examples.slice(0, 2).map(plainText).join(" or ")}`);
  else if (schema.format && formatText(schema.format)) hints.push(formatText(schema.format));
  if (schema.minimum !== undefined) hints.push(`at least ${schema.minimum}`);
  if (schema.maximum !== undefined) hints.push(`at most ${schema.maximum}`);
  if (schema.maxLength !== undefined) hints.push(`up to ${schema.maxLength} characters`);
  return hints.join(", ");
}

function plainText(value) {
  return typeof value === "string" ? value : JSON.stringify(value);
}

// Builds the methods of a field from a function that reads the field and throws problems.
function createField(spec, parts, read, focus) {
  const field = {
    element: parts.element,
    focus,
    clearProblems: parts.clearProblem,
    read(problems) {
      try {
        return read();
      } catch (error) {
        if (!(error instanceof FieldError)) throw error;
        parts.showError(error.message);
        problems.push({ path: spec.path, message: error.message, field });
        return undefined;
      }
    },
  };
  return field;
}

class FieldError extends Error {}

// The value of an empty field.
function emptyValue(required) {
  if (required) throw new FieldError("this field is required");
  return undefined;
}

function textField(spec) {
  const { schema, value, required, parse, mode } = spec;
  const text = value === undefined || value === null ? "" : String(value);
  const isLong = text.length > LONG_TEXT_CHARACTERS || (schema.type === "string" && (schema.maxLength ?? 0) > LONG_TEXT_CHARACTERS);
  const { type, ...converter } = inputOf(isLong ? undefined : schema.format, text);
  const control = isLong
    ? el("textarea", { id: newId(), rows: "4" })
    : el("input", { id: newId(), type, autocomplete: "off", step: type === "datetime-local" && "1" });
  if (mode) control.setAttribute("inputmode", mode);
  if (required) control.setAttribute("aria-required", "true");
  control.value = converter.write(text);
  const read = () => {
    if (control.validity.badInput) throw new FieldError("complete this value, or clear it");
    return control.value === "" ? emptyValue(required) : parse(converter.read(control.value));
  };
  return createField(spec, addLabel(spec, control), read, () => control.focus());
}

function checkText(text, schema) {
  const length = [...text].length;
  if (length < (schema.minLength ?? 0)) throw new FieldError(`write at least ${schema.minLength} characters`);
  if (length > (schema.maxLength ?? Infinity)) throw new FieldError(`write at most ${schema.maxLength} characters`);
  return text;
}

function numberParser(type, schema) {
  return (text) => {
    const trimmedText = text.trim();
    const isNumber = type === "integer" ? /^[-+]?\d+$/.test(trimmedText) : trimmedText !== "" && Number.isFinite(Number(trimmedText));
    if (!isNumber) throw new FieldError(type === "integer" ? "write a whole number" : "write a number, such as 12.5");
    const number = Number(trimmedText);
    if (type === "integer" && !Number.isSafeInteger(number)) throw new FieldError("this number is too large here");
    if (number < (schema.minimum ?? -Infinity)) throw new FieldError(`write ${schema.minimum} or more`);
    if (number > (schema.maximum ?? Infinity)) throw new FieldError(`write ${schema.maximum} or less`);
    return number;
  };
}

function choiceField(spec) {
  const { choices, value, required, labels = {} } = spec;
  const textOf = (choice) => labels[String(choice)] ?? plainText(choice);
  const chosenIndex = choices.findIndex((choice) => JSON.stringify(choice) === JSON.stringify(value));
  if (choices.length > MAX_RADIO_CHOICES || !required) {
    const emptyOption = el("option", { value: "" }, required ? "choose…" : "");
    const options = choices.map((choice, index) => el("option", { value: String(index) }, textOf(choice)));
    const control = el("select", { id: newId() }, emptyOption, ...options);
    control.value = chosenIndex >= 0 ? String(chosenIndex) : "";
    if (required) control.setAttribute("aria-required", "true");
    const read = () => (control.value === "" ? emptyValue(required) : choices[Number(control.value)]);
    return createField(spec, addLabel(spec, control), read, () => control.focus());
  }
  const name = newId();
  const inputs = choices.map((_, index) => {
    const input = el("input", { type: "radio", name, value: String(index) });
    input.checked = index === chosenIndex || (choices.length === 1 && required);
    return input;
  });
  const options = choices.map((choice, index) => el("label", { class: "choice" }, inputs[index], textOf(choice)));
  const control = el("div", { id: name, class: "choices", role: "radiogroup" }, ...options);
  const read = () => {
    const index = inputs.findIndex((input) => input.checked);
    return index < 0 ? emptyValue(required) : choices[index];
  };
  return createField(spec, addLabel(spec, control, { group: true }), read, () => inputs[0].focus());
}

/** A form for any JSON value; an empty form is a problem if `required`. The other options are as in `schemaForm`. */
export function jsonForm({ value, label, required = true }) {
  const field = jsonField({ value, label, required, path: [], root: {}, schema: {} });
  return {
    element: field.element,
    read() {
      const problems = [];
      field.clearProblems();
      return { value: field.read(problems), problems };
    },
    focus: () => field.focus(),
  };
}

// A field with JSON text, for all other types.
function jsonField(spec) {
  const { value, required } = spec;
  const control = el("textarea", { id: newId(), class: "code", rows: "5", spellcheck: "false" });
  control.value = value === undefined ? "" : JSON.stringify(value, null, 2);
  const read = () => {
    if (control.value.trim() === "") return emptyValue(required);
    try {
      return JSON.parse(control.value);
    } catch (error) {
      throw new FieldError(`invalid JSON: ${error.message}; strings need "quotes"`);
    }
  };
  const describedSpec = { ...spec, schema: { ...spec.schema, description: spec.schema?.description ?? "as JSON" } };
  return createField(describedSpec, addLabel(describedSpec, control), read, () => control.focus());
}

function storeReferenceField(spec) {
  const notice = `${spec.value.bytes ?? "many"} bytes, not shown here and left as they are: ${spec.value.preview}`;
  const control = el("p", { id: newId(), class: "hint" }, notice);
  return createField(spec, addLabel(spec, control), () => undefined, () => {});
}

function objectField(spec) {
  const { schema, value, path, root, required } = spec;
  const requiredNames = new Set(schema.required ?? []);
  const names = Object.keys(schema.properties);
  // Only a top-level input may stay empty, because the run asks for it. An input with a value must be complete.
  const emptyNote = path.length === 0 ? spec.emptyNote : undefined;
  const fields = names.map((name) =>
    makeField(schema.properties[name], {
      root,
      path: [...path, name],
      value: value?.[name],
      required: requiredNames.has(name) && emptyNote === undefined,
      emptyNote: requiredNames.has(name) ? emptyNote : undefined,
      label: resolveReference(schema.properties[name], root).title ?? name,
    }),
  );
  const elements = fields.map((field) => field.element);
  const isTop = path.length === 0 && !spec.label;
  const legend = el("legend", {}, spec.label || path.at(-1) || "", optionalMark(spec));
  const element = isTop ? el("div", { class: "fields" }, ...elements) : el("fieldset", { class: "fields" }, legend, ...elements);
  return {
    element,
    focus: () => fields[0]?.focus(),
    clearProblems: () => fields.forEach((field) => field.clearProblems()),
    read(problems) {
      const fieldProblems = [];
      const entries = names.map((name, index) => [name, fields[index].read(fieldProblems)]).filter(([, fieldValue]) => fieldValue !== undefined);
      // An optional object without any value is omitted.
      if (!required && entries.length === 0) {
        fields.forEach((field) => field.clearProblems());
        return undefined;
      }
      problems.push(...fieldProblems);
      return Object.fromEntries(entries);
    },
  };
}

function arrayField(spec) {
  const { schema, root } = spec;
  const items = resolveReference(schema.items ?? {}, root);
  return Array.isArray(items.enum) ? multipleChoiceField({ ...spec, choices: items.enum }) : listField({ ...spec, items });
}

function multipleChoiceField(spec) {
  const { choices, value, required, schema } = spec;
  const initialTexts = new Set((Array.isArray(value) ? value : []).map((initialValue) => JSON.stringify(initialValue)));
  const inputs = choices.map((choice) => {
    const input = el("input", { type: "checkbox" });
    input.checked = initialTexts.has(JSON.stringify(choice));
    return input;
  });
  const options = choices.map((choice, index) => el("label", { class: "choice" }, inputs[index], plainText(choice)));
  const control = el("div", { id: newId(), class: "choices", role: "group" }, ...options);
  const read = () => {
    const chosenValues = choices.filter((_, index) => inputs[index].checked);
    if (chosenValues.length === 0 && !required) return undefined;
    if (chosenValues.length < (schema.minItems ?? 0)) throw new FieldError(`choose at least ${schema.minItems}`);
    if (chosenValues.length > (schema.maxItems ?? Infinity)) throw new FieldError(`choose at most ${schema.maxItems}`);
    return chosenValues;
  };
  return createField(spec, addLabel(spec, control, { group: true }), read, () => inputs[0]?.focus());
}

function listField(spec) {
  const { schema, value, items, path, root, required } = spec;
  const fields = [];
  const list = el("div", { id: newId(), class: "list" });
  const addItem = (itemValue) => {
    const field = makeField(items, { root, path: [...path, fields.length], value: itemValue, required: true, label: "Item" });
    const removeButton = el("button", { type: "button", class: "plain", "aria-label": "Remove this item" }, "Remove");
    const row = el("div", { class: "list-row" }, field.element, removeButton);
    removeButton.addEventListener("click", () => {
      fields.splice(fields.indexOf(field), 1);
      row.remove();
      addButton.focus();
    });
    fields.push(field);
    list.append(row);
    return field;
  };
  const addButton = el("button", { type: "button" }, "Add an item");
  addButton.addEventListener("click", () => addItem(undefined).focus());
  const initialItems = Array.isArray(value) ? value : Array.from({ length: required ? (schema.minItems ?? 0) : 0 });
  initialItems.forEach((itemValue) => addItem(itemValue));
  const control = el("div", { id: newId(), role: "group" }, list, addButton);
  const parts = addLabel(spec, control, { group: true });
  const field = createField(spec, parts, () => {
    if (fields.length === 0 && !required) return undefined;
    if (fields.length < (schema.minItems ?? 0)) throw new FieldError(`add at least ${schema.minItems}`);
    return [];
  }, () => addButton.focus());
  const read = field.read;
  return {
    ...field,
    clearProblems() {
      parts.clearProblem();
      fields.forEach((itemField) => itemField.clearProblems());
    },
    read(problems) {
      const emptyList = read(problems);
      return emptyList === undefined ? undefined : fields.map((itemField) => itemField.read(problems));
    },
  };
}
