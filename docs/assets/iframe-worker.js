// Browsers refuse to start workers on pages that were opened from file://, and the search runs in a worker. There, and
// only there, the same script runs in a hidden frame behind the same interface.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.frame.srcdoc = "<!doctype html>";
      this.loaded = new Promise((resolve, reject) => {
        this.frame.onload = () => {
          const inner = this.frame.contentWindow;
          inner.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
          const script = inner.document.createElement("script");
          script.src = new URL(url, location.href);
          script.onload = resolve;
          script.onerror = reject;
          inner.document.head.appendChild(script);
        };
      });
      document.documentElement.appendChild(this.frame);
    }

    postMessage(data) {
      this.loaded.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
