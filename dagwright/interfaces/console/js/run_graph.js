// The graph of a run that the page has loaded, and its boxes: nodes, or groups of nodes.
//
// Up to MAX_BOXES nodes are drawn individually. In larger graphs, nodes of neighbouring levels form at most MAX_GROUPS
// groups, and a large group opens into smaller groups. At most MAX_BOXES boxes are drawn.

export const MAX_BOXES = 2000;
/** Maximum number of groups of a graph, or of parts of a group. */
const MAX_GROUPS = 20;
/** Maximum number of nodes that are drawn for an open group. */
const MAX_MEMBERS = 400;
const SEPARATOR = "\u0000";
/** Defaults of the fields that the document of a node may omit. */
const EMPTY_FIELDS = { reason: undefined, error: undefined };

/** The ID of the map node (node with `for_each`) of an item: `each` for `each[2]`; null for the ID of a node. */
export function mapNodeOf(id) {
  return id.endsWith("]") ? id.slice(0, id.indexOf("[")) : null;
}

export class RunGraph {
  /** Node id -> {node_id, title, status, tool, attempts, reason, started_at, ended_at, error}. */
  nodes = new Map();
  /** Id of a node with items -> item id -> document of the item, with the same fields. */
  items = new Map();
  edges = [];
  dependencies = new Map();
  dependents = new Map();
  /** Node id -> number of edges of the longest path that ends at the node. */
  levels = new Map();
  /** Key of each open group -> its label. The items of a node are a group, too. */
  openGroups = new Map();
  /** Whether the nodes of a group, such as a round, are drawn as one box. */
  isFolded = false;
  /** Whether an event named a node that is not in the graph. */
  hasUnknownNodes = false;

  /** Load nodes and edges from `GET /v1/runs/ID/graph`; fields from newer events are kept. */
  load({ nodes, edges, cursor }) {
    const loadedNodes = this.nodes;
    const mergeNode = (node, loadedNode) => ({ ...loadedNode, ...EMPTY_FIELDS, ...node, ...(isLater(loadedNode?.changedAt, cursor) ? loadedNode.changes : {}) });
    this.nodes = new Map(nodes.map((node) => [node.node_id, mergeNode(node, loadedNodes.get(node.node_id))]));
    this.edges = edges.filter(([from, to]) => this.nodes.has(from) && this.nodes.has(to));
    this.dependencies = new Map(nodes.map(({ node_id: id }) => [id, []]));
    this.dependents = new Map(nodes.map(({ node_id: id }) => [id, []]));
    for (const [from, to] of this.edges) {
      this.dependencies.get(to).push(from);
      this.dependents.get(from).push(to);
    }
    this.levels = levelsOf([...this.nodes.keys()], this.dependencies, this.dependents);
    this.hasUnknownNodes = false;
    this.#groups = null;
  }

  /** Apply events of nodes that were sent together; `cursor` is their event ID. Return the IDs of the changed nodes. */
  applyEvents(events, cursor = null) {
    const changedIds = new Set();
    for (const { node_id: id, ...fields } of events) {
      const mapNodeId = this.nodes.has(id) ? null : mapNodeOf(id);
      if (mapNodeId !== null && this.nodes.has(mapNodeId)) {
        if (!this.items.has(mapNodeId)) this.items.set(mapNodeId, new Map());
        const items = this.items.get(mapNodeId);
        items.set(id, { ...items.get(id), ...EMPTY_FIELDS, node_id: id, ...fields });
        changedIds.add(mapNodeId);
      } else if (this.nodes.has(id)) {
        const changes = { ...EMPTY_FIELDS, ...fields };
        this.nodes.set(id, { ...this.nodes.get(id), ...changes, changes, changedAt: cursor });
        changedIds.add(id);
      } else {
        this.hasUnknownNodes = true;
      }
    }
    return changedIds;
  }

  /** State -> number of nodes. */
  counts(ids = this.nodes.keys()) {
    const counts = {};
    for (const id of ids) {
      const { status } = this.nodes.get(id);
      counts[status] = (counts[status] ?? 0) + 1;
    }
    return counts;
  }

  /** Whether the counts of the loaded nodes by state differ from `counts`. */
  differsFromCounts(counts) {
    const loadedCounts = this.counts();
    const states = new Set([...Object.keys(counts), ...Object.keys(loadedCounts)]);
    return [...states].some((status) => (counts[status] ?? 0) !== (loadedCounts[status] ?? 0));
  }

  /** Return the node or item with an ID, or null. */
  find(id) {
    return this.nodes.get(id) ?? this.items.get(mapNodeOf(id))?.get(id) ?? null;
  }

  #groups = null;

  /** Groups of nodes by level, for graphs with more than MAX_BOXES nodes; each {key, label, members}. */
  #levelGroups() {
    if (this.#groups) return this.#groups;
    const levels = [];
    for (const [id, level] of this.levels) (levels[level] ??= []).push(id);
    const levelsPerGroup = Math.ceil(levels.length / MAX_GROUPS);
    this.#groups = [];
    for (let start = 0; start < levels.length; start += levelsPerGroup) {
      const last = Math.min(start + levelsPerGroup, levels.length) - 1;
      const label = start === last ? `Level ${start + 1}` : `Levels ${start + 1} to ${last + 1}`;
      this.#groups.push({ key: `level${SEPARATOR}${start}`, label, members: levels.slice(start, last + 1).flat() });
    }
    return this.#groups;
  }

  /** Whether nodes have named groups that can be drawn as one box each. */
  get hasGroups() {
    return this.nodes.size <= MAX_BOXES && [...this.nodes.values()].some((node) => node.group);
  }

  /** Groups of nodes with the same `group`, each {key, label, members}; a node without `group` forms its own group. */
  *#namedGroups() {
    const groups = new Map();
    for (const { node_id: id, group } of this.nodes.values()) {
      const key = group ? `group${SEPARATOR}${group}` : id;
      if (!groups.has(key)) groups.set(key, { key, label: group ?? id, members: [] });
      groups.get(key).members.push(id);
    }
    yield* groups.values();
  }

  /** Split a group into smaller groups, in the order of its members. */
  #split(group) {
    const count = Math.min(MAX_GROUPS, Math.ceil(group.members.length / MAX_MEMBERS) * 2);
    const membersPerPart = Math.ceil(group.members.length / count);
    const parts = [];
    for (let start = 0; start < group.members.length; start += membersPerPart) {
      const members = group.members.slice(start, start + membersPerPart);
      const label = `${group.label}, ${(start + 1).toLocaleString("en")} to ${(start + members.length).toLocaleString("en")}`;
      parts.push({ key: `${group.key}${SEPARATOR}${start}`, label, members });
    }
    return parts;
  }

  /** Open or close a group. The groups that were opened first are closed if there would be too many boxes. */
  toggle(key, label = key) {
    if (this.openGroups.delete(key)) {
      for (const openKey of [...this.openGroups.keys()]) if (isPartOf(openKey, key)) this.openGroups.delete(openKey);
      return;
    }
    this.openGroups.set(key, label);
    while (this.openGroups.size > 1 && this.boxes().boxes.length > MAX_BOXES) {
      const oldest = [...this.openGroups.keys()].find((openKey) => openKey !== key && !isPartOf(key, openKey));
      if (oldest === undefined) return;
      this.toggle(oldest);
    }
  }

  /** Open the groups of a node, so that it is drawn. */
  reveal(id) {
    const nodeId = this.nodes.has(id) ? id : mapNodeOf(id);
    if (this.nodes.size <= MAX_BOXES || !this.nodes.has(nodeId)) return;
    let groups = this.#levelGroups();
    for (;;) {
      const group = groups.find((candidate) => candidate.members.includes(nodeId));
      if (!this.openGroups.has(group.key)) this.toggle(group.key, group.label);
      if (group.members.length <= MAX_MEMBERS) return;
      groups = this.#split(group);
    }
  }

  /**
   * The boxes and edges to draw.
   *
   * A box is {key, id} for a node, {key, id, openGroup} for a node of an open group, {key, id, mapNodeId} for an item of
   * the node `mapNodeId`, or {key, label, members} for a group. Edges are [from, to] between keys, without duplicates.
   * `boxOf` maps a node to the key of its box.
   */
  boxes() {
    const boxes = [];
    const boxOf = new Map();
    const add = (box, ids) => {
      boxes.push(box);
      for (const id of ids) boxOf.set(id, box.key);
    };
    const addGroup = (group) => {
      if (!this.openGroups.has(group.key)) return add(group, group.members);
      if (group.members.length > MAX_MEMBERS) return this.#split(group).forEach(addGroup);
      return group.members.forEach((id) => add({ key: id, id, openGroup: group }, [id]));
    };
    const addNode = (id) => add({ key: id, id }, [id]);
    if (this.nodes.size > MAX_BOXES) this.#levelGroups().forEach(addGroup);
    else if (!this.isFolded) [...this.nodes.keys()].forEach(addNode);
    else
      for (const group of this.#namedGroups()) {
        if (this.nodes.has(group.key)) addNode(group.key);
        else addGroup(group);
      }
    const edges = new Map();
    for (const [from, to] of this.edges) {
      const [a, b] = [boxOf.get(from), boxOf.get(to)];
      if (a !== b) edges.set(a + SEPARATOR + SEPARATOR + b, [a, b]);
    }
    const drawnEdges = [...edges.values()];
    for (const box of [...boxes]) {
      const items = box.id !== undefined && this.openGroups.has(itemsKey(box.id)) ? this.items.get(box.id) : undefined;
      for (const id of [...(items?.keys() ?? [])].slice(0, MAX_MEMBERS)) {
        boxes.push({ key: id, id, mapNodeId: box.id });
        drawnEdges.push([box.key, id]);
      }
    }
    return { boxes, edges: drawnEdges, boxOf };
  }
}

/** Whether a cursor in the history of a run, such as `1-145`, is after another cursor. */
function isLater(cursor, otherCursor) {
  if (!cursor || !otherCursor) return false;
  const [[runNumber, eventNumber], [otherRunNumber, otherEventNumber]] = [cursor, otherCursor].map((text) => text.match(/\d+/g).map(Number));
  return runNumber === otherRunNumber ? eventNumber > otherEventNumber : runNumber > otherRunNumber;
}

/** Whether a group is part of another group. */
export function isPartOf(key, groupKey) {
  return key.startsWith(groupKey + SEPARATOR);
}

/** The key of the open items of a node. */
export function itemsKey(id) {
  return `items${SEPARATOR}${id}`;
}

/** Node ID -> level. Assumes that the graph has no cycles, like every valid plan. */
function levelsOf(ids, dependencies, dependents) {
  const levels = new Map(ids.map((id) => [id, 0]));
  const remainingDependencyCounts = new Map(ids.map((id) => [id, dependencies.get(id).length]));
  const readyIds = ids.filter((id) => remainingDependencyCounts.get(id) === 0);
  for (let index = 0; index < readyIds.length; index += 1) {
    const nextLevel = levels.get(readyIds[index]) + 1;
    for (const dependent of dependents.get(readyIds[index])) {
      if (nextLevel > levels.get(dependent)) levels.set(dependent, nextLevel);
      remainingDependencyCounts.set(dependent, remainingDependencyCounts.get(dependent) - 1);
      if (remainingDependencyCounts.get(dependent) === 0) readyIds.push(dependent);
    }
  }
  return levels;
}
