package mutant_test

// A testControl is a package whose tests must fail without a safeguard: one that processes
// or seeds do not miss within a minute.
type testControl struct {
	Package string // below the root
	Tests   string // a regular expression
	Break   string // the mutant's name
}

// testControls returns them.
func testControls() []testControl {
	const nodesAgree = "^TestNodesAgreeAndBytesAreSafe$"
	return []testControl{
		{"metadata", nodesAgree, "victims"},
		{"metadata", nodesAgree, "abandoned-writers"},
		{"metadata", nodesAgree, "quota-charges"},
		{"metadata", "^TestLeasesWhileAnUnmountLooks$|^TestReadersThatNeedNoLeaseWhileAnUnmountLooks$", "unmount-notes"},
		{"internal/service", "^TestPutsAtOnceKeepToTheQuota$", "quota-holds"},
		{"lab/judge", "^TestPlentyOfMemory$", "quota-admits"},
		{"metadata", "^TestModelSnapshotUnderWrites$", "snapshot-overlap"},
		{"metadata", "^TestSnapshotWhileCommitsAreApplied$", "encoded-unmounts"},
		{"metadata", "^TestQuarantineKeepsUp$", "quarantine-backlog"},
		{"journal", "^TestAgainstTheFirstHistory$", "history-adopt"},
		{"promote", "^TestFullEtcdKeepsWhatNoNodeHasSaved$", "cover-first"},
		{"promote", "^TestEmptyBesideAFileThatIsNotCompared$", "may-hold"},
		{"metadata", "^TestUnnumberedPuts$", "unsent-answers"},
		{"promote", "^TestOwnerCompactsForAnotherPrimary$", "owner-compacts"},
		{"internal/service", "^TestRemoveAllLooksAgainAtWhatIsBusy$", "busy-removals"},
		{"promote", "^TestStopWhileACommitIsInDoubt$", "handover-bound"},
		{"promote/follower", "^TestForgedRecordIsLeftOut$", "doubted-records"},
		{"promote", "^TestRenewalsWhileEtcdStalls$", "serving-deadline"},
		{"promote", "^TestTakeoverKeepsTheCache$", "kept-cache"},
		{"internal/service", "^TestSearchesTakeTurns$", "scan-turns"},
		{"internal/rpc", "^TestStreamsOfOneHost$", "digest-places"},
		{"internal/rpc", "^TestNoEventsOfAFencedNode$", "events-fence"},
		{"internal/app", "^TestStreamsBehindTakeTurns$", "events-turns"},
		{"internal/rpc", "^TestUnfinishedRequests$|^TestUnreadAnswers$", "grpc-budgets"},
		{"journal", "^TestRightEndsBeforeChangesAreTakenBack$", "right-first"},
		{"journal", "^TestTheRightAllowsForClockRates$", "clock-rates"},
		{"promote", "^TestFoundedWithoutThePrimary$", "fork-guard"},
		{"eviction", "^TestALongGuardDoesNotEmptyTheCache$", "long-guard"},
		{"internal/service", "^TestNothingIsCopiedToAnSSDThatIsToBeWiped$", "wiped-copies"},
		{"promote", "^TestPauseHoldsFoundingsBack$/^head_deleted$", "founding-pause"},
		{"promote", "^TestFoundedBesideAPrimaryThatWasDeposed$", "lapsed-primaries"},
		{"promote", "^TestRestartOnARestoredEtcd$/^another_etcd$", "other-etcd"},
		{"promote", "^TestTermsOfALostBranchAreNotUsedAgain$", "lost-terms"},
		{"promote", "^TestARollbackToALaterHead$", "steady-sign"},
		{"promote", "^TestRefoundFromABackup$", "announced-losses"},
		{"metadata", "^TestPutWithoutMemoryReplacesNothing$", "failed-puts"},
		{"journal", "^TestRecordsLiveUntilStateFilesCoverThem$", "covered-records"},
		{"promote", "^TestRestartBehindAnEtcdThatCompactsItself$", "kept-records"},
		{"promote", "^TestAnElectedNodeWithASilentWatch$", "silent-watch"},
		{"promote", "^TestATermThatEtcdRefuses$", "vain-elections"},
		{"promote", "^TestALoneMasterUnderAnotherID$/^with_no_list_of_nodes$", "former-id"},
		{"internal/service", "^TestClaimedEndpointsAreShared$", "claimed-endpoints"},
		{"internal/service", "^TestNamesOfSegmentsAreShared$", "segment-names"},
		{"internal/service", "^TestTransfersMakeRoomInTheQuota$", "spared-objects"},
		{"promote", "^TestForgetANodeThatStarts$", "starting-forgotten"},
		{"internal/rpc", "^TestFloodsAreSlowed$", "frame-pace"},
		{"internal/mooncake/coro", "^TestFloodsTakeTurns$", "flood-slots"},
		{"internal/rpc", "^TestStopBesideSilentConnections$", "silent-handshakes"},
		{"internal/etcd/etcdserver", "^TestCopyOfAMember$", "copied-member"},
		{"internal/etcd/etcdserver", "^TestConnectionsAreBounded$", "etcd-connections"},
		{"internal/etcd/etcdserver", "^TestWhoseConnectionsAreTaken$", "members-addresses"},
		{"internal/security/certs", "^TestUnfitCertificateIsNotTaken$", "unfit-certificates"},
		{"internal/security/certs", "^TestFilesThatCannotBeUsed$", "broken-authorities"},
		{"client", "^TestTokenFileThatHangs$", "token-reads"},
		{"internal/app", "^TestLooksAreShared$", "status-looks"},
		{"internal/app", "^TestQuarantineEndsWithoutHA$", "lone-quarantine"},
		{"internal/app", "^TestViewerGivesNoOrder$", "viewer-orders"},
		{"internal/app", "^TestUnreadBytesInTheSystem$", "socket-buffers"},
		{"internal/rpc", "^TestSlowStreamsEnd$", "slow-streams"},
		{"internal/httpapi", "^TestSilentConnectionsGiveWay$", "idle-http"},
		{"internal/metrics", "^TestManyNamesOfSegments$", "metric-names"},
		{"internal/app", "^TestConnectionsOfOneIdentity$", "identity-connections"},
		{"internal/mooncake/kvpublisher", "^TestSlowSubscriber$", "held-batches"},
		{"internal/mooncake/kvpublisher", "^TestSubscribersOfOneHost$", "subscriber-places"},
	}
}
