// Package otel exports the runs of controllers as OpenTelemetry traces. It is a separate Go module, so that only
// programs that use it depend on OpenTelemetry. It uses the OpenTelemetry API; the program chooses the SDK and the
// exporters.
//
//	tracer, err := otel.New(otel.Config{TracerProvider: provider})
//	...
//	Handler: controller.Chain(handler, middleware.Trace[widget](tracer)),
//
// (widget is a pointer to the type of the objects, as *corev1.Pod.)
//
// Each run that calls the Handler is a trace. Calls of Config.Deleted are not traced:
//
//	run pods                      from the first event to the end of the run
//	├── cause updated             the time of the cause, without duration; one span for each cause
//	├── cause retry
//	├── queue wait                from the time when the key became ready to the run
//	└── handle pods               the Handler; its span in the context is the parent of the handler's spans
//	    ├── get configmaps        a request to the API server
//	    └── patch pods/status
//
// A cause that planned the run (a retry, a requeue) arose at the end of the previous run. Its planned delay is not part
// of the trace: attribute evenkeel.cause.delay contains it.
//
// A run is not a child of the span in the context of the controller's Run, because then all runs would be in one trace.
// To follow a write from one controller to the next, the first one writes its span context into an annotation
// (Tracer.Inject), and the runs of the second one are linked to it, or are its children (Config.Parent).
//
// The sampler decides about a run by its name, parent and trace, before it has attributes: the Tracer builds nothing
// else for a run that is not sampled. Its Run.TraceID is empty, and if the provider's sampler is trace.ParentBased, the
// spans of its handler are not recorded either.
//
// # Attributes
//
// The attributes follow OpenTelemetry's semantic conventions if one exists. Durations are in seconds. Empty and zero
// values are omitted.
//
//	run        evenkeel.controller, evenkeel.key, k8s.namespace.name, evenkeel.run.id,
//	           evenkeel.object.uid, evenkeel.object.generation, evenkeel.attempt,
//	           evenkeel.causes (text), evenkeel.outcome, evenkeel.requeue_after, error.type
//	cause      evenkeel.cause.type, .source, .kind, .object, .uid, .resource_version, .changed,
//	           .manager, .attempt, .detail, .count, .delay
//	queue wait evenkeel.queue.held: the time for which the key was held back
//	handle     evenkeel.controller, evenkeel.outcome, error.type; a failure is an exception event
//	request    http.request.method, http.response.status_code, error.type, k8s.namespace.name,
//	           evenkeel.call.verb, .resource, .subresource, .name, .dry_run
//	link       evenkeel.link.key: the object that the linked context was written into
//
// A request has no server.address and url.full, because kube.Call does not have them.
//
// error.type of a run is the class of its error (package retry; see Config.Classify for classes of the program). For a
// request it is the HTTP status, or the Go type of the error if there was no response. evenkeel.outcome is a
// controller.Outcome.
package otel
