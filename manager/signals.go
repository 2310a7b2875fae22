package manager

import (
	"os"
	"os/signal"
	"syscall"
)

// exitOnSignal plus the number of a signal is the exit status after the second signal, as in shells.
const exitOnSignal = 128

func notifySignals(to chan<- os.Signal) (stop func()) {
	signal.Notify(to, os.Interrupt, syscall.SIGTERM)
	return func() { signal.Stop(to) }
}

// handleSignals stops the manager at the first signal, and exits at the second one. stop ends the handling, and waits
// for its end.
func (m *Manager) handleSignals() (stop func()) {
	if m.config.IgnoreSignals {
		return func() {}
	}
	signals := make(chan os.Signal, 2)
	stopNotify := m.config.notify(signals)
	done, ended := make(chan struct{}), make(chan struct{})
	go func() { // waited for by stop
		defer close(ended)
		for first := true; ; first = false {
			select {
			case s := <-signals:
				if !first {
					m.exit(s)
					return
				}
				m.logger.Info("signal received", "signal", signalName(s))
				m.stop("signal "+signalName(s), nil)
			case <-done:
				return
			}
		}
	}()
	return func() {
		stopNotify()
		close(done)
		<-ended
	}
}

// exit exits the process at the second signal.
func (m *Manager) exit(s os.Signal) {
	status := exitOnSignal
	if number, ok := s.(syscall.Signal); ok {
		status += int(number)
	}
	m.logger.Error("second signal, process exits without the rest of the shutdown",
		"reason", "second signal "+signalName(s), "status", status)
	m.config.exit(status)
}

// signalName returns the name by which users know a signal. Its String is "terminated" or "interrupt".
func signalName(s os.Signal) string {
	switch s {
	case syscall.SIGTERM:
		return "SIGTERM"
	case os.Interrupt:
		return "SIGINT"
	default:
		return s.String()
	}
}
