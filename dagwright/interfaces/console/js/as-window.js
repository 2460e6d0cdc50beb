// For a library that was written for pages and runs in a worker: there what belongs to all is not called `window`.

self.window = self;
