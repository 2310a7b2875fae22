// Command database is an operator as a newcomer would write it: for each Database it maintains a StatefulSet, a
// Service, a Secret with a password that is generated once, a PodDisruptionBudget, and a backup outside the cluster.
// The README in the folder above has the commands.
package main

import (
	"context"

	"github.com/evenkeel-go/evenkeel"
	v1 "github.com/evenkeel-go/evenkeel/examples/database/api/v1"
)

func main() { evenkeel.Main(name, run) }

func run(ctx context.Context, p *evenkeel.Program) error {
	url := p.Flags.String("backups", "http://127.0.0.1:8054", "URL of the backup service")
	version := p.Flags.Int("version", 18, "version of PostgreSQL for Databases without one")
	cluster, err := p.Connect(v1.AddToScheme)
	if err != nil {
		return err
	}
	op, err := newOperator(cluster, p.Metrics.Registerer, httpBackups(*url), int32(*version))
	if err != nil {
		return err
	}
	return p.Run(ctx, op)
}
