BEGIN TRANSACTION;
CREATE TABLE ledger_account (
	name TEXT NOT NULL, 
	dataset TEXT NOT NULL, 
	unit TEXT NOT NULL, 
	unit_column TEXT, 
	adjacency TEXT NOT NULL, 
	epsilon DOUBLE NOT NULL, 
	delta DOUBLE NOT NULL, 
	renyi_order DOUBLE, 
	budget DOUBLE NOT NULL, 
	period_days INTEGER, 
	period_epsilon DOUBLE, 
	key_id TEXT NOT NULL, 
	partition_key TEXT NOT NULL, 
	opened_at TEXT NOT NULL, 
	split TEXT, 
	gaussian_budget DOUBLE, 
	rooms TEXT, 
	terms TEXT, 
	PRIMARY KEY (name), 
	UNIQUE (dataset)
);
INSERT INTO "ledger_account" VALUES('letters','letters','person','unit','add_remove',30.0,1.0e-06,2.31673624890663099051e+00,1.94885336453747441964e+01,NULL,NULL,'6ea979637e2d','72990980b55413c18f9dc249e6f665ec909d3e81fef0fd488302db43d57f2c80','2026-11-20T12:00:00.000000Z','{"chances":0.05,"gaussian":0.35,"renyi":0.2,"repeats":0.4}',1.85684555392673829032e+01,NULL,NULL);
CREATE TABLE ledger_draw (
	release_id TEXT NOT NULL, 
	part TEXT NOT NULL, 
	number BIGINT NOT NULL, 
	token BIGINT NOT NULL, 
	body BLOB NOT NULL, 
	PRIMARY KEY (release_id, part, number)
);
CREATE TABLE ledger_entry (
	release_id TEXT NOT NULL, 
	number BIGINT NOT NULL, 
	account TEXT NOT NULL, 
	method TEXT NOT NULL, 
	state TEXT NOT NULL CHECK (state IN ('RESERVED', 'BEGUN', 'COMMITTED', 'LOST', 'VOID')), 
	event TEXT NOT NULL, 
	loss DOUBLE NOT NULL, 
	epsilon DOUBLE NOT NULL, 
	delta DOUBLE NOT NULL, 
	reserved_at TEXT NOT NULL, 
	changed_at TEXT NOT NULL, 
	scratch TEXT, 
	host TEXT, 
	nonce TEXT, 
	artifact_sha256 TEXT, 
	certificate_sha256 TEXT, 
	reason TEXT, 
	reserved_by TEXT, 
	mu_squared DOUBLE, 
	PRIMARY KEY (release_id), 
	UNIQUE (number), 
	FOREIGN KEY(account) REFERENCES ledger_account (name)
);
INSERT INTO "ledger_entry" VALUES('invisible_ink-f3939ef626b69ddf',1,'letters','invisible_ink','COMMITTED','{"event":{"cells":2,"events":[{"count":6,"kind":"bounded_range","range":1.2101062319495461}],"kind":"disjoint"},"kind":"random_allocation","places":8,"version":1}',2.54439686833293077228e+00,5.9999984994915980252e+00,1.0e-06,'2026-11-20T12:00:00.000000Z','2026-11-20T12:00:00.000000Z','/tmp/clinic/.privsyn/scratch/invisible_ink-f3939ef626b69ddf','clinic','e50253b515c3fcd0721d7cb346ec8bb9','37b61f56b066dc98738fc8294bf9cc1679cfe9546fe34c366ba0e69a13341595','e35b5a97b6ae31ea6c86fb104993eae894c10c74b9e6623fe09635725224ad7f',NULL,NULL,1.56531403215825393182e+00);
INSERT INTO "ledger_entry" VALUES('private_prediction-ad2185d052e99800',2,'letters','private_prediction','COMMITTED','{"cells":2,"events":[{"count":12,"events":[{"epsilon":0.25,"kind":"pure"},{"count":1,"kind":"bounded_range","range":0.25}],"kind":"rounds"}],"kind":"disjoint","version":1}',1.05551127882482909114e+00,4.16480096713266689789e+00,1.0e-06,'2026-11-20T12:00:00.000000Z','2026-11-20T12:00:00.000000Z','/tmp/clinic/.privsyn/scratch/private_prediction-ad2185d052e99800','clinic','d10cc8070eca03c87cff6bdefdde7be1','4d0781f618168afc47ee62f7d34bc91049eae6866900449d1d12b46f70f2cb98','aba60e5c9378aead3a886428cd822ee1fb9ad2fb0247e0085688954b600ca53b',NULL,NULL,9.50719085562081511753e-01);
INSERT INTO "ledger_entry" VALUES('private_evolution-a4d31dc50c31c92e',3,'letters','private_evolution','COMMITTED','{"count":2,"kind":"discrete_gaussian","noise_multiplier":1.1821521046851187,"version":1}',1.65779136957925499196e+00,5.99999999969999642246e+00,1.0e-06,'2026-11-20T12:00:00.000000Z','2026-11-20T12:00:00.000000Z','/tmp/clinic/.privsyn/scratch/private_evolution-a4d31dc50c31c92e','clinic','dff83a69c9c8364dff312fc0fb8b6d71','8dcaaf7da763b1dc881df5f355a5bb88c1fcad1059e1240ecc8dc7ca0938ba8b','debb3696a9de8b1ca6649b49e6878a73e7d4a10cda53913892511012eae236df',NULL,NULL,1.43114380876255475882e+00);
INSERT INTO "ledger_entry" VALUES('keyphrase_seeding-139104b61732d653',4,'letters','keyphrase_seeding','COMMITTED','{"events":[{"count":1,"kind":"discrete_gaussian","noise_multiplier":1.1821521046863144},{"cells":2,"events":[{"events":[{"count":1,"kind":"discrete_gaussian","noise_multiplier":1.1821521046863142}],"kind":"sequence"}],"kind":"disjoint"}],"kind":"sequence","version":1}',1.65779136957590145229e+00,5.99999999969300112923e+00,1.0e-06,'2026-11-20T12:00:00.000000Z','2026-11-20T12:00:00.000000Z','/tmp/clinic/.privsyn/scratch/keyphrase_seeding-139104b61732d653','clinic','1704e0a7e5c894ff2f7ef138ffbccaf5','d7078ef6c4addc6d2eea366a6fef5bd43e61399d6d9f6df6927eb4995df01947','b0c2dfe3ae6499c48e96281d15405e7a4dde8e5ebbfffe17da75e74c4fb9aeed',NULL,NULL,1.43114380875965974126e+00);
INSERT INTO "ledger_entry" VALUES('dp_lora-84d40f2989a15276',5,'letters','dp_lora','COMMITTED','{"kind":"sampled_gaussian","noise_multiplier":1.079539680571883,"rate":0.5,"steps":3,"version":1}',1.09381911107497,5.99999850028934478274e+00,1.0e-06,'2026-11-20T12:00:00.000000Z','2026-11-20T12:00:00.000000Z','/tmp/clinic/.privsyn/scratch/dp_lora-84d40f2989a15276','clinic','850accec9223db8ef59e03580cbac99b','7c17d37263dedf8547926abf445af13ad9a67d4b226d6f0ea122755163edff17','3f9a607ac786c35daa183ac9650d77dab6c300b8088f5a2aa414f27525aba56f',NULL,NULL,1.58258647766395199596e+00);
INSERT INTO "ledger_entry" VALUES('invisible_ink-d4bb8b5a502767f1',6,'letters','invisible_ink','BEGUN','{"event":{"cells":2,"events":[{"count":6,"kind":"bounded_range","range":0.4412886771288785}],"kind":"disjoint"},"kind":"random_allocation","places":8,"version":1}',3.38363435386225930301e-01,9.99999693175487092133e-01,1.0e-06,'2026-11-20T12:00:00.000000Z','2026-11-20T12:00:00.000000Z','/tmp/clinic/.privsyn/scratch/invisible_ink-d4bb8b5a502767f1','clinic','d6300e12484381fc499e0a0d9964e13d',NULL,NULL,NULL,NULL,7.06259506366458539305e-02);
CREATE TABLE ledger_head (
	id INTEGER NOT NULL CHECK (id = 1), 
	seq BIGINT NOT NULL, 
	hash TEXT NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "ledger_head" VALUES(1,18,'50cbaf220f7187b7860f14a5f64fd9b22e49980d5a7a741511ccd17d926ba494');
CREATE TABLE ledger_history (
	seq BIGINT NOT NULL, 
	at TEXT NOT NULL, 
	account TEXT NOT NULL, 
	release_id TEXT, 
	change TEXT NOT NULL, 
	body TEXT NOT NULL, 
	previous TEXT NOT NULL, 
	hash TEXT NOT NULL, 
	PRIMARY KEY (seq)
);
INSERT INTO "ledger_history" VALUES(1,'2026-11-20T12:00:00.000000Z','letters',NULL,'OPENED','{"adjacency":"add_remove","budget":19.488533645374744,"dataset":"letters","delta":1e-06,"epsilon":30.0,"gaussian_budget":18.568455539267383,"key_id":"6ea979637e2d","key_sha256":"49c063996e2fc4ff88bdb0a8aac57b731bf86ee2ecdab494b15bedeb9c0a4cc5","period_days":null,"period_epsilon":null,"renyi_order":2.316736248906631,"rooms":null,"salt":"05f446ff4f20d29982280775a20259f3","split":"{\"chances\":0.05,\"gaussian\":0.35,\"renyi\":0.2,\"repeats\":0.4}","unit":"person","unit_column":"unit"}','0000000000000000000000000000000000000000000000000000000000000000','4e49b5ecbc213ab8993ad26e8944becca8d5e7e7f3bb0b167c0bcce9f98f9926');
INSERT INTO "ledger_history" VALUES(2,'2026-11-20T12:00:00.000000Z','letters','invisible_ink-f3939ef626b69ddf','RESERVED','{"delta":1e-06,"epsilon":5.999998499491598,"event":{"event":{"cells":2,"events":[{"count":6,"kind":"bounded_range","range":1.2101062319495461}],"kind":"disjoint"},"kind":"random_allocation","places":8,"version":1},"loss":2.5443968683329308,"method":"invisible_ink","mu_squared":1.565314032158254,"number":1,"salt":"437044a90bbcdb922eda5f6c47e45a36","settings_digest":"300ba7b3238404507cad7746582fb32008ee6125ddd4230ca81f074e05aac103"}','4e49b5ecbc213ab8993ad26e8944becca8d5e7e7f3bb0b167c0bcce9f98f9926','91616c8734ac23cd4f6e34cb0dd8500f2013ecf049f814a80f47ab13ec4ac41f');
INSERT INTO "ledger_history" VALUES(3,'2026-11-20T12:00:00.000000Z','letters','invisible_ink-f3939ef626b69ddf','BEGUN','{"host":"clinic","nonce":"e50253b515c3fcd0721d7cb346ec8bb9","salt":"835f1e6ef32c5a08ee184c26bd7643a8","scratch":"/tmp/clinic/.privsyn/scratch/invisible_ink-f3939ef626b69ddf"}','91616c8734ac23cd4f6e34cb0dd8500f2013ecf049f814a80f47ab13ec4ac41f','27420ef84ad5e074ec04831ca5b8891282998cf53056354a3038445edeb942c2');
INSERT INTO "ledger_history" VALUES(4,'2026-11-20T12:00:00.000000Z','letters','invisible_ink-f3939ef626b69ddf','COMMITTED','{"artifact_sha256":"37b61f56b066dc98738fc8294bf9cc1679cfe9546fe34c366ba0e69a13341595","certificate_sha256":"e35b5a97b6ae31ea6c86fb104993eae894c10c74b9e6623fe09635725224ad7f","salt":"e3c0054223f47739088c60200188f637"}','27420ef84ad5e074ec04831ca5b8891282998cf53056354a3038445edeb942c2','3c35663d21247a8b5a897023ebee16985af85fa8b5408292a160e4dbb196341c');
INSERT INTO "ledger_history" VALUES(5,'2026-11-20T12:00:00.000000Z','letters','private_prediction-ad2185d052e99800','RESERVED','{"delta":1e-06,"epsilon":4.164800967132667,"event":{"cells":2,"events":[{"count":12,"events":[{"epsilon":0.25,"kind":"pure"},{"count":1,"kind":"bounded_range","range":0.25}],"kind":"rounds"}],"kind":"disjoint","version":1},"loss":1.055511278824829,"method":"private_prediction","mu_squared":0.9507190855620815,"number":2,"salt":"7286c24b3f63312f7b734368173c3a1d","settings_digest":"f815abd9606e3d8e46b3a39eccb0f8a4bbd1798129f1878790c85a13ba4f501b"}','3c35663d21247a8b5a897023ebee16985af85fa8b5408292a160e4dbb196341c','d1ed742537bce3d53ec14b6f9f75b2b76eccdf3729484f192d8cada8c418c9cb');
INSERT INTO "ledger_history" VALUES(6,'2026-11-20T12:00:00.000000Z','letters','private_prediction-ad2185d052e99800','BEGUN','{"host":"clinic","nonce":"d10cc8070eca03c87cff6bdefdde7be1","salt":"44c0d4fe4250f621ad2fb2338d075b2e","scratch":"/tmp/clinic/.privsyn/scratch/private_prediction-ad2185d052e99800"}','d1ed742537bce3d53ec14b6f9f75b2b76eccdf3729484f192d8cada8c418c9cb','f907161cc43463b6b0e784106e00314fe9a95aae775932c32b6ce5a77f729a66');
INSERT INTO "ledger_history" VALUES(7,'2026-11-20T12:00:00.000000Z','letters','private_prediction-ad2185d052e99800','COMMITTED','{"artifact_sha256":"4d0781f618168afc47ee62f7d34bc91049eae6866900449d1d12b46f70f2cb98","certificate_sha256":"aba60e5c9378aead3a886428cd822ee1fb9ad2fb0247e0085688954b600ca53b","salt":"7d086886a58ba7c510566eab650ea631"}','f907161cc43463b6b0e784106e00314fe9a95aae775932c32b6ce5a77f729a66','6cd5feeeb00769982d36516079923bf1cfb98e81212985a65e1acf2f1b2e485c');
INSERT INTO "ledger_history" VALUES(8,'2026-11-20T12:00:00.000000Z','letters','private_evolution-a4d31dc50c31c92e','RESERVED','{"delta":1e-06,"epsilon":5.999999999699996,"event":{"count":2,"kind":"discrete_gaussian","noise_multiplier":1.1821521046851187,"version":1},"loss":1.657791369579255,"method":"private_evolution","mu_squared":1.4311438087625548,"number":3,"salt":"0afbf251bbfe13f627a9e278e63199f1","settings_digest":"a6cfbf9f0950a0178fb08646775b26f9b3f688bf2d59868fb684ebacb2c27d37"}','6cd5feeeb00769982d36516079923bf1cfb98e81212985a65e1acf2f1b2e485c','c16ea220b35cdd1cf4c00ecbe519ce339b796077cc10feb14f0793a84232bd5e');
INSERT INTO "ledger_history" VALUES(9,'2026-11-20T12:00:00.000000Z','letters','private_evolution-a4d31dc50c31c92e','BEGUN','{"host":"clinic","nonce":"dff83a69c9c8364dff312fc0fb8b6d71","salt":"6ed5a2905fc7b6011588117f3b5d3078","scratch":"/tmp/clinic/.privsyn/scratch/private_evolution-a4d31dc50c31c92e"}','c16ea220b35cdd1cf4c00ecbe519ce339b796077cc10feb14f0793a84232bd5e','c08590fc5012012ca69debf2c609b92d36886d04ba69462f5b0bf6eccc7a6240');
INSERT INTO "ledger_history" VALUES(10,'2026-11-20T12:00:00.000000Z','letters','private_evolution-a4d31dc50c31c92e','COMMITTED','{"artifact_sha256":"8dcaaf7da763b1dc881df5f355a5bb88c1fcad1059e1240ecc8dc7ca0938ba8b","certificate_sha256":"debb3696a9de8b1ca6649b49e6878a73e7d4a10cda53913892511012eae236df","salt":"b673c6cd6e86b6c2fe691c847a0e6d07"}','c08590fc5012012ca69debf2c609b92d36886d04ba69462f5b0bf6eccc7a6240','87e8c04c081376649b4ab4d251102429e0a15928cf83b54576a20bbda931cf4f');
INSERT INTO "ledger_history" VALUES(11,'2026-11-20T12:00:00.000000Z','letters','keyphrase_seeding-139104b61732d653','RESERVED','{"delta":1e-06,"epsilon":5.999999999693001,"event":{"events":[{"count":1,"kind":"discrete_gaussian","noise_multiplier":1.1821521046863144},{"cells":2,"events":[{"events":[{"count":1,"kind":"discrete_gaussian","noise_multiplier":1.1821521046863142}],"kind":"sequence"}],"kind":"disjoint"}],"kind":"sequence","version":1},"loss":1.6577913695759015,"method":"keyphrase_seeding","mu_squared":1.4311438087596597,"number":4,"salt":"618990aa6465a500993104c541bb0479","settings_digest":"00ad78dfefc30a13b583bb0b644a156ac8883febb0e9aeb021dd47766ee65950"}','87e8c04c081376649b4ab4d251102429e0a15928cf83b54576a20bbda931cf4f','5afa35159019307fd67e6f1aa5314088ad5fd106d9c7677746845afa743aa177');
INSERT INTO "ledger_history" VALUES(12,'2026-11-20T12:00:00.000000Z','letters','keyphrase_seeding-139104b61732d653','BEGUN','{"host":"clinic","nonce":"1704e0a7e5c894ff2f7ef138ffbccaf5","salt":"2c59e21f96f71c1dfcf79861655beec5","scratch":"/tmp/clinic/.privsyn/scratch/keyphrase_seeding-139104b61732d653"}','5afa35159019307fd67e6f1aa5314088ad5fd106d9c7677746845afa743aa177','f53ef9840af3db3e3498aeba629f25c6bdb1a48227708ffa96a8f449bdc63b15');
INSERT INTO "ledger_history" VALUES(13,'2026-11-20T12:00:00.000000Z','letters','keyphrase_seeding-139104b61732d653','COMMITTED','{"artifact_sha256":"d7078ef6c4addc6d2eea366a6fef5bd43e61399d6d9f6df6927eb4995df01947","certificate_sha256":"b0c2dfe3ae6499c48e96281d15405e7a4dde8e5ebbfffe17da75e74c4fb9aeed","salt":"4424072889be982d6cc14598545121cd"}','f53ef9840af3db3e3498aeba629f25c6bdb1a48227708ffa96a8f449bdc63b15','01857fb0c3b0e640f4abf0e75d5e2eb645fbba46069149d63518331e1cbe2118');
INSERT INTO "ledger_history" VALUES(14,'2026-11-20T12:00:00.000000Z','letters','dp_lora-84d40f2989a15276','RESERVED','{"delta":1e-06,"epsilon":5.999998500289345,"event":{"kind":"sampled_gaussian","noise_multiplier":1.079539680571883,"rate":0.5,"steps":3,"version":1},"loss":1.09381911107497,"method":"dp_lora","mu_squared":1.582586477663952,"number":5,"salt":"45fa30eb450611331686bc8bf2302b11","settings_digest":"ecc5515e2a03aec83755e3f6bcac0266f07fe1c0b796292b1b308b79ab2a49f2"}','01857fb0c3b0e640f4abf0e75d5e2eb645fbba46069149d63518331e1cbe2118','82369392c5a80452ad0bb2cdfa94acfa7d198ef9868869f45941c17529a57e6a');
INSERT INTO "ledger_history" VALUES(15,'2026-11-20T12:00:00.000000Z','letters','dp_lora-84d40f2989a15276','BEGUN','{"host":"clinic","nonce":"850accec9223db8ef59e03580cbac99b","salt":"bab70f004b5fe5424a93d0d572346e30","scratch":"/tmp/clinic/.privsyn/scratch/dp_lora-84d40f2989a15276"}','82369392c5a80452ad0bb2cdfa94acfa7d198ef9868869f45941c17529a57e6a','b17542cd6f2b94ba116107a07fe1af8717a7350fe9797d6118d167fd103b6991');
INSERT INTO "ledger_history" VALUES(16,'2026-11-20T12:00:00.000000Z','letters','dp_lora-84d40f2989a15276','COMMITTED','{"artifact_sha256":"7c17d37263dedf8547926abf445af13ad9a67d4b226d6f0ea122755163edff17","certificate_sha256":"3f9a607ac786c35daa183ac9650d77dab6c300b8088f5a2aa414f27525aba56f","salt":"737bddee5a97b3af56e0e60575b63308"}','b17542cd6f2b94ba116107a07fe1af8717a7350fe9797d6118d167fd103b6991','0c00b394edeec84a4a803f8ef960bcb4e22253b1d0c0a02ec19b6819b62acdb1');
INSERT INTO "ledger_history" VALUES(17,'2026-11-20T12:00:00.000000Z','letters','invisible_ink-d4bb8b5a502767f1','RESERVED','{"delta":1e-06,"epsilon":0.9999996931754871,"event":{"event":{"cells":2,"events":[{"count":6,"kind":"bounded_range","range":0.4412886771288785}],"kind":"disjoint"},"kind":"random_allocation","places":8,"version":1},"loss":0.33836343538622593,"method":"invisible_ink","mu_squared":0.07062595063664585,"number":6,"salt":"24a5823dfece045f00fd5e2e1c9466ab","settings_digest":"bd1c3416f4424a7329211d68fba0ad4848daa5f3ef8cf2f26e0835103b13c31e"}','0c00b394edeec84a4a803f8ef960bcb4e22253b1d0c0a02ec19b6819b62acdb1','a71b24d6f1be483b25f13b1abdd797d2797d098cf619503133d21d345477713e');
INSERT INTO "ledger_history" VALUES(18,'2026-11-20T12:00:00.000000Z','letters','invisible_ink-d4bb8b5a502767f1','BEGUN','{"host":"clinic","nonce":"d6300e12484381fc499e0a0d9964e13d","salt":"1dfeafb15ba692b6e9cb0ee676434e64","scratch":"/tmp/clinic/.privsyn/scratch/invisible_ink-d4bb8b5a502767f1"}','a71b24d6f1be483b25f13b1abdd797d2797d098cf619503133d21d345477713e','50cbaf220f7187b7860f14a5f64fd9b22e49980d5a7a741511ccd17d926ba494');
CREATE TABLE ledger_lease (
	release_id TEXT NOT NULL, 
	part TEXT NOT NULL, 
	token BIGINT NOT NULL, 
	machine TEXT, 
	host TEXT, 
	pid BIGINT, 
	started BIGINT, 
	expires_at TEXT NOT NULL, 
	steps BIGINT NOT NULL, 
	PRIMARY KEY (release_id, part)
);
INSERT INTO "ledger_lease" VALUES('invisible_ink-f3939ef626b69ddf','partition',1,NULL,'clinic',3240,636527,'2026-11-20T12:01:00.000000Z',0);
INSERT INTO "ledger_lease" VALUES('invisible_ink-f3939ef626b69ddf','shard-0',1,NULL,'clinic',3240,636527,'2026-11-20T12:01:00.000000Z',48);
INSERT INTO "ledger_lease" VALUES('invisible_ink-f3939ef626b69ddf','shard-1',1,NULL,'clinic',3240,636527,'2026-11-20T12:01:00.000000Z',48);
INSERT INTO "ledger_lease" VALUES('invisible_ink-f3939ef626b69ddf','certificate',1,NULL,'clinic',3240,636527,'2026-11-20T12:01:00.000000Z',0);
INSERT INTO "ledger_lease" VALUES('private_prediction-ad2185d052e99800','partition',1,NULL,'clinic',3240,636527,'2026-11-20T12:01:00.000000Z',0);
INSERT INTO "ledger_lease" VALUES('private_prediction-ad2185d052e99800','shard-0',1,NULL,'clinic',3240,636527,'2026-11-20T12:01:00.000000Z',29);
INSERT INTO "ledger_lease" VALUES('private_prediction-ad2185d052e99800','shard-1',1,NULL,'clinic',3240,636527,'2026-11-20T12:01:00.000000Z',41);
INSERT INTO "ledger_lease" VALUES('private_prediction-ad2185d052e99800','certificate',1,NULL,'clinic',3240,636527,'2026-11-20T12:01:00.000000Z',0);
INSERT INTO "ledger_lease" VALUES('private_evolution-a4d31dc50c31c92e','partition',1,NULL,'clinic',3240,636527,'2026-11-20T12:01:00.000000Z',0);
INSERT INTO "ledger_lease" VALUES('private_evolution-a4d31dc50c31c92e','shard-0',1,NULL,'clinic',3240,636527,'2026-11-20T12:01:00.000000Z',16);
INSERT INTO "ledger_lease" VALUES('private_evolution-a4d31dc50c31c92e','certificate',1,NULL,'clinic',3240,636527,'2026-11-20T12:01:00.000000Z',0);
INSERT INTO "ledger_lease" VALUES('keyphrase_seeding-139104b61732d653','partition',1,NULL,'clinic',3240,636527,'2026-11-20T12:01:00.000000Z',0);
INSERT INTO "ledger_lease" VALUES('keyphrase_seeding-139104b61732d653','shard-0',1,NULL,'clinic',3240,636527,'2026-11-20T12:01:00.000000Z',6);
INSERT INTO "ledger_lease" VALUES('keyphrase_seeding-139104b61732d653','certificate',1,NULL,'clinic',3240,636527,'2026-11-20T12:01:00.000000Z',0);
INSERT INTO "ledger_lease" VALUES('dp_lora-84d40f2989a15276','partition',1,NULL,'clinic',3240,636527,'2026-11-20T12:01:00.000000Z',0);
INSERT INTO "ledger_lease" VALUES('dp_lora-84d40f2989a15276','shard-train',1,NULL,'clinic',3240,636527,'2026-11-20T12:01:00.000000Z',1);
INSERT INTO "ledger_lease" VALUES('dp_lora-84d40f2989a15276','shard-0',1,NULL,'clinic',3240,636527,'2026-11-20T12:01:00.000000Z',0);
INSERT INTO "ledger_lease" VALUES('dp_lora-84d40f2989a15276','certificate',1,NULL,'clinic',3240,636527,'2026-11-20T12:01:00.000000Z',0);
INSERT INTO "ledger_lease" VALUES('invisible_ink-d4bb8b5a502767f1','partition',1,NULL,'clinic',3240,636527,'2026-11-20T12:01:00.000000Z',0);
INSERT INTO "ledger_lease" VALUES('invisible_ink-d4bb8b5a502767f1','shard-0',1,NULL,'clinic',3240,636527,'2026-11-20T12:01:00.000000Z',48);
CREATE TABLE ledger_migration (
	version INTEGER NOT NULL, 
	applied_at TEXT NOT NULL, 
	PRIMARY KEY (version)
);
INSERT INTO "ledger_migration" VALUES(11,'2026-11-27T08:38:33.458421Z');
CREATE TABLE ledger_refusal (
	number BIGINT NOT NULL, 
	at TEXT NOT NULL, 
	account TEXT NOT NULL, 
	release_id TEXT, 
	method TEXT, 
	epsilon DOUBLE, 
	delta DOUBLE, 
	error TEXT NOT NULL, 
	message TEXT NOT NULL, 
	refused_by TEXT, 
	PRIMARY KEY (number)
);
CREATE TABLE ledger_secret (
	name TEXT NOT NULL, 
	value TEXT NOT NULL, 
	PRIMARY KEY (name)
);
INSERT INTO "ledger_secret" VALUES('source','e88ad91cf3346f1d167ad699005bafff93e298789beb5cf44676625440fcb657');
CREATE TABLE ledger_source (
	release_id TEXT NOT NULL, 
	account TEXT NOT NULL, 
	version TEXT NOT NULL, 
	fingerprint TEXT NOT NULL, 
	noted_at TEXT NOT NULL, 
	PRIMARY KEY (release_id)
);
INSERT INTO "ledger_source" VALUES('invisible_ink-f3939ef626b69ddf','letters','v1','284acba33c8833d7f51830eb39b45eecdfd72ac4','2026-11-20T12:00:00.000000Z');
INSERT INTO "ledger_source" VALUES('private_prediction-ad2185d052e99800','letters','v1','284acba33c8833d7f51830eb39b45eecdfd72ac4','2026-11-20T12:00:00.000000Z');
INSERT INTO "ledger_source" VALUES('private_evolution-a4d31dc50c31c92e','letters','v1','284acba33c8833d7f51830eb39b45eecdfd72ac4','2026-11-20T12:00:00.000000Z');
INSERT INTO "ledger_source" VALUES('keyphrase_seeding-139104b61732d653','letters','v1','284acba33c8833d7f51830eb39b45eecdfd72ac4','2026-11-20T12:00:00.000000Z');
INSERT INTO "ledger_source" VALUES('dp_lora-84d40f2989a15276','letters','v1','284acba33c8833d7f51830eb39b45eecdfd72ac4','2026-11-20T12:00:00.000000Z');
INSERT INTO "ledger_source" VALUES('invisible_ink-d4bb8b5a502767f1','letters','v1','284acba33c8833d7f51830eb39b45eecdfd72ac4','2026-11-20T12:00:00.000000Z');
CREATE TABLE ledger_vault (
	release_id TEXT NOT NULL, 
	key_id TEXT NOT NULL, 
	wrapped_key BLOB NOT NULL, 
	nonce TEXT NOT NULL, 
	shards INTEGER NOT NULL, 
	made_at TEXT NOT NULL, 
	PRIMARY KEY (release_id)
);
CREATE INDEX ix_ledger_history_release_id ON ledger_history (release_id);
CREATE INDEX ix_ledger_source_fingerprint ON ledger_source (fingerprint);
CREATE INDEX ix_ledger_entry_account ON ledger_entry (account);
COMMIT;
