package conformance_test

var upserts = []line{
	{number: 35, given: "an upsert of the same size: the same buffers, readable after its end", differs: true},
	{number: 36, given: "an upsert of another size: new buffers", differs: true},
	{number: 37, given: "a put in progress, another client upserts: the first writer's PutEnd answers -601", differs: true},
	{number: 38, given: "an upsert in place is revoked: the object is gone", differs: true},
	{number: 39, given: "an active copy task: an upsert answers -708", differs: true},
	{number: 40, given: "the source of an active copy or move is not evicted", shown: "metadata/TestTransferProtectsItsSource"},
	{number: 41, given: "a copy or move past its timeout is discarded", shown: "metadata/TestTransfersHoldTheirTargets"},
	{number: 42, given: "the wrong client completes a task: refused", shown: "internal/mooncake/mooncakeserver/TestTasks"},
	{number: 65, given: "a drain ends as DRAINED, cancelling it restores OK", shown: "internal/service/TestDrain"},
}
