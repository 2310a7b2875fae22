// Package contractmatrix tests the contracts of docs/reference/contracts.md in many configurations of a
// controller.
//
// TestContractMatrix makes one test for each contract and each configuration, from two tables: contracts
// (contracts_test.go) and configurations (configurations_test.go). A contract has a scenario, which is a function of a
// cell. The cell is an API server in memory, and one or two processes that run a controller in the configuration. A
// scenario performs user actions and checks the results; it does not depend on the configuration.
//
// A cell without a test has a reason in the table. go test -run TestContractMatrix -v prints the configurations, the
// scenarios, and these reasons.
//
// A new contract needs a row in contracts. A new configuration needs an entry in configurations: every scenario without
// a reason against it is then tested in it.
package contractmatrix
