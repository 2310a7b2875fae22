package leadership

// ControllerLabel is the pprof label of the goroutines that call a controller's handlers, and of goroutines that
// handlers start. Its value is the controller's name. CPU and goroutine profiles contain it. By the label package kube
// identifies writes that are made without the context of their run, and which the end of a term cannot cancel.
const ControllerLabel = "evenkeel.controller"
