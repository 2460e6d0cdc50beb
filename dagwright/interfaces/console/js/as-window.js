// Defines `window`, which workers do not have, for the layout library.

self.window = self;
