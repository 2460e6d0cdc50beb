// Defines `window` for the layout library, because web workers have no `window`.

self.window = self;
