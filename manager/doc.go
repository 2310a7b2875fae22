// Package manager runs the parts of a program together: HTTP servers, caches, controllers and anything else with a
// method Run(ctx) error. It starts and stops them in order, restarts them, runs a part of them only while this process
// leads, handles signals, and serves health probes and metrics.
//
// A program with one controller and no HTTP server does not need it: Controller.Run is enough.
//
// # Groups
//
// Each Runnable is in one Group. Groups start and stop in this order:
//
//   - Start: Servers, Caches, Always, acquire the lease, LeaderOnly.
//   - Stop: LeaderOnly, Always, Caches, Servers, release the lease.
//
// Servers and Caches start together, without waiting for each other: a server may need a cache to be ready, and a cache
// may need a server (of a conversion webhook) to list. Always starts when all of them are ready, and the election
// begins when Always is ready. A Runner with the method Ready of Component is ready when that returns nil, any other
// one when it was started.
//
// # Restarts
//
// A Runnable that returns an error or panics before it was stopped has failed: see FailurePolicy. A Runnable that
// returns nil has finished: it is not started again (a LeaderOnly one is, in the next term), and the others continue.
//
// # Leadership
//
// When the lease is lost, the contexts of LeaderOnly runnables are cancelled at once with the cause
// kube.ErrLeadershipLost. When all of them have returned, the manager competes for the lease again, without a restart
// of the process. A LeaderOnly Runner must therefore be able to run again after it has returned, as controllers are. If
// one does not return within its DrainTime, the process can neither lead nor be a standby: Run stops the other
// runnables and returns an error.
//
// Controllers in a manager with a lease must have no LeaderElector of their own.
package manager
