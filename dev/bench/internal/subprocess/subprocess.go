// Package subprocess holds what starting a measured program needs: its environment, and the end of its output.
package subprocess

import (
	"os"
	"strings"
	"sync"
)

// Environment returns this process's environment without the variables that change a program's runtime or cluster.
func Environment() []string {
	var result []string
	for _, variable := range os.Environ() {
		name, _, _ := strings.Cut(variable, "=")
		switch strings.ToUpper(name) {
		case "GOGC", "GOMEMLIMIT", "GODEBUG", "GOMAXPROCS", "KUBECONFIG", "HTTP_PROXY", "HTTPS_PROXY":
		default:
			result = append(result, variable)
		}
	}
	return result
}

// tailBytes is how much of the output a Tail keeps.
const tailBytes = 4000

// Tail is a writer that keeps the last 4,000 bytes. The zero value is ready to use, also by several goroutines.
type Tail struct {
	mu   sync.Mutex
	text []byte // guarded by mu
}

// Write implements io.Writer. It returns no errors.
func (t *Tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, b...)
	t.text = t.text[max(len(t.text)-tailBytes, 0):]
	return len(b), nil
}

// String returns the kept text, or that nothing was written.
func (t *Tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.text) == 0 {
		return "it wrote no output"
	}
	return strings.TrimSpace(string(t.text))
}
