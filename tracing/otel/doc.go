// Package otel shows what controllers do as OpenTelemetry traces. It is a module of its own, so
// that only programs that use it depend on OpenTelemetry; it uses the API, and leaves the SDK
// and exporters to the program.
//
//	tracer, err := otel.New(otel.Config{TracerProvider: provider})
//	...
//	Handler: controller.Chain(handler, middleware.Trace[widget](tracer)),
//
// (widget is a pointer to the type of the objects, as *corev1.Pod.)
//
// Each run that calls the Handler is a trace; what Config.Deleted does is in none:
//
//	run pods                      from the first event to the end of the run
//	├── cause updated             a moment: when it happened; one span for each cause
//	├── cause retry
//	├── queue wait                from when the key was due to the run
//	└── handle pods               the Handler; current in its context: its own spans hang below
//	    ├── get configmaps        a request to the API server
//	    └── patch pods/status
//
// A cause that planned the run (a retry, a requeue) happened when the run before ended; what
// was waited for since then on purpose is not in the trace, but in evenkeel.cause.delay.
//
// A run is not a child of any span in the context that the controller was run with, which would
// put all runs into one trace. What one controller writes can be followed into the next: the
// first puts its context into an annotation (Tracer.Inject), and the runs of the second are
// linked to that, or children of it (Config.Parent).
//
// Samplers are asked about a run by its name, parent and trace, before there are attributes: of
// a run that is sampled out nothing is built. Its Run.TraceID is empty, and the spans of its
// handler are not recorded either where the provider's sampler is trace.ParentBased.
//
// # Attributes
//
// OpenTelemetry's semantic conventions are followed where they have a word. Durations are in
// seconds; what is empty or zero is left out.
//
//	run        evenkeel.controller, evenkeel.key, k8s.namespace.name, evenkeel.run.id,
//	           evenkeel.object.uid, evenkeel.object.generation, evenkeel.attempt,
//	           evenkeel.causes (text), evenkeel.outcome, evenkeel.requeue_after, error.type
//	cause      evenkeel.cause.type, .source, .kind, .object, .uid, .resource_version, .changed,
//	           .manager, .attempt, .detail, .count, .delay
//	queue wait evenkeel.queue.held: for how much of it the key was held back
//	handle     evenkeel.controller, evenkeel.outcome, error.type; a failure is an exception event
//	request    http.request.method, http.response.status_code, error.type, k8s.namespace.name,
//	           evenkeel.call.verb, .resource, .subresource, .name, .dry_run
//	link       evenkeel.link.key: the object that the linked context was written into
//
// A request has no server.address and url.full: kube.Call does not tell.
//
// error.type of a run is the class of its error (package retry; see Config.Classify for classes
// of the program's own), of a request the HTTP status,
// or the error's type where no answer came. evenkeel.outcome is a controller.Outcome.
package otel
