package prometheus

import (
	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/retry"
)

func CauseTypes() []controller.CauseType     { return causeTypes() }
func SkipReasons() []controller.SkipReason   { return skipReasons() }
func ProblemTypes() []controller.ProblemType { return problemTypes() }
func Outcomes() []controller.Outcome         { return outcomes() }
func Classes() []retry.Class                 { return classes() }
