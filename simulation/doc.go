// Package simulation gives a test a Kubernetes cluster in memory, with virtual time. Its API server behaves like
// kube-apiserver; docs/testing.md describes its limits, and docs/reference/conformance.md the comparison.
//
// [Test] runs a test with a [Cluster]. The tested programs get a [rest.Config]: controllers of this library, managers
// of controller-runtime, or any client. This test runs a controller that copies ConfigMaps into Secrets:
//
//	simulation.Test(t, simulation.Config{}, func(t *testing.T, c *simulation.Cluster) {
//		c.Run(newCopier(t, c))
//		c.Apply(motto)
//		c.Settle()
//		secret := simulation.Get[*corev1.Secret](c, "default/motto")
//		...
//	})
//
// The cluster has CustomResourceDefinitions, with validation by schemas and CEL rules, admission webhooks, and models
// of the garbage collector and of the controllers of namespaces, Deployments, StatefulSets, Jobs, Pods,
// PodDisruptionBudgets and the addresses of Services. It is a separate Go module, because CEL has many dependencies.
//
// # Time
//
// Test begins a bubble of testing/synctest: time stands still while a goroutine works, and jumps to the next timer when
// all of them wait. So all waits end immediately, and a test has the same order of events each time, as far as its
// goroutines have. Timeouts of watches between 5 and 10 minutes, which client-go chooses at random, become 7.5 minutes.
// A goroutine that waits for the network, a file or a locked mutex stops time, and with it the test.
//
// # Failed tests
//
// A failed test logs the latest requests of all clients, the Events, and the runs of the controllers of this library
// with their causes. Programs are stopped at the end of each test, also after [testing.T.Fatal].
package simulation
