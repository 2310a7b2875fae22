package simulation

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

const (
	// timelineLines is the number of lines of a timeline, linesBefore that of lines before the first fault.
	timelineLines = 30
	linesBefore   = 8
	columnWidth   = 28
)

// timeline returns the writes and failed requests of a run, with a column for each client.
func timeline(o *outcome) string {
	type entry struct {
		time   time.Time
		column int
		text   string
	}
	columns := append(append([]string{"user"}, o.programs...), "Kubernetes")
	var entries []entry
	for _, r := range o.requests {
		failed := r.Status == 0 || r.Status >= http.StatusBadRequest
		if !r.IsWrite() && !failed || isLeftOut(r.Resource.GroupResource()) {
			continue
		}
		column := 0
		switch {
		case r.instance != nil:
			column = slices.Index(columns, r.instance.program)
		case r.isOfModel:
			column = len(columns) - 1
		}
		_, text, _ := strings.Cut(r.String(), ": ")
		entries = append(entries, entry{r.Time, column, text})
	}
	for _, h := range o.happened {
		entries = append(entries, entry{h.time, slices.Index(columns, h.program), "<" + string(h.kind) + ">"})
	}
	slices.SortStableFunc(entries, func(a, b entry) int { return a.time.Compare(b.time) })
	first := 0
	if len(entries) > timelineLines && len(o.happened) > 0 {
		fault := slices.IndexFunc(entries, func(e entry) bool { return !e.time.Before(o.happened[0].time) })
		first = max(0, min(fault-linesBefore, len(entries)-timelineLines))
	}
	var b strings.Builder
	header := []string{"time        "}
	for _, c := range columns {
		header = append(header, fmt.Sprintf("%-*.*s", columnWidth, columnWidth, c))
	}
	b.WriteString(strings.TrimRight(strings.Join(header, " "), " ") + "\n")
	for _, e := range entries[first:min(len(entries), first+timelineLines)] {
		fmt.Fprintf(&b, "%s %s%s\n", clock(e.time), strings.Repeat(" ", (columnWidth+1)*e.column), e.text)
	}
	if n := len(entries) - first - timelineLines; n > 0 {
		fmt.Fprintf(&b, "and %d more\n", n)
	}
	return b.String()
}
