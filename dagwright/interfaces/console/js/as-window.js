// For a library written for pages that runs in a worker: workers have no `window`.

self.window = self;
